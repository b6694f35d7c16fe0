//! The end-to-end suite over the memory transport.

use erpc_tests::suite::Memory;

erpc_tests::suite!(Memory);
