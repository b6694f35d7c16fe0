//! The end-to-end suite over kernel UDP.

use erpc_tests::suite::Loopback;

erpc_tests::suite!(Loopback);
