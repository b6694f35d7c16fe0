//! Captures, and what tshark shows of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use erpc_core::transport::frame::{Header, Interface, Mac, Network};

/// The UDP port of all servers.
pub(crate) const SERVER_PORT: u16 = 31_850;

/// Options of tshark: all packets of servers are erpc.
pub(crate) const BY_PORT: [&str; 2] = ["-o", "erpc.ports:31850"];
/// Option of tshark: it reads the capture twice, as Wireshark does.
pub(crate) const TWICE: &str = "-2";

/// A client and a server. The client's port is 20,000 plus the number.
#[derive(Clone, Copy)]
pub(crate) struct Flow(pub(crate) u16);

impl Flow {
    pub(crate) fn client_port(self) -> u16 {
        20_000 + self.0
    }

    /// Even flows are over IPv4, odd ones over IPv6. Two of four have a VLAN tag.
    fn host(self, last: u8) -> Interface {
        let address: IpAddr = match self.0 % 2 {
            0 => Ipv4Addr::new(192, 0, 2, last).into(),
            _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into(),
        };
        Interface {
            mac: Mac([2, 0, 0, 0, 0, last]),
            vlan: (self.0 / 2 % 2 == 1).then_some(7),
            networks: vec![Network { address, prefix: 24 }],
            gateways: Vec::new(),
            checksums: true,
        }
    }
}

/// A file of captured frames (pcap, times in ns).
pub(crate) struct Capture {
    bytes: Vec<u8>,
    frames: usize,
}

impl Capture {
    pub(crate) fn new() -> Self {
        let words = [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 1];
        Self { bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(), frames: 0 }
    }

    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// Adds a frame with a datagram, captured `nanos` after the first. The capture keeps all but
    /// the last `cut` bytes.
    pub(crate) fn add(
        &mut self,
        flow: Flow,
        to_server: bool,
        nanos: u64,
        datagram: &[u8],
        cut: usize,
    ) {
        let (mut from, mut to) = (flow.host(1), flow.host(2));
        let mut ports = (flow.client_port(), SERVER_PORT);
        if !to_server {
            (from, to) = (to, from);
            ports = (ports.1, ports.0);
        }
        let header = Header::new(&from, to.networks[0].address, to.mac, false);
        let header = header.expect("addresses of one family");
        let mut frame = vec![0; header.len()];
        frame.extend_from_slice(datagram);
        header.write(&mut frame, ports.0, ports.1);
        // The seconds are those of a time in 2026. Only differences matter.
        let (secs, rest) = (1_780_000_000 + nanos / 1_000_000_000, nanos % 1_000_000_000);
        for word in [secs as u32, rest as u32, (frame.len() - cut) as u32, frame.len() as u32] {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes.extend_from_slice(&frame[..frame.len() - cut]);
        self.frames += 1;
    }

    /// What tshark shows of each frame: the fields that the frame has, each with its values. The
    /// heuristic decides which packets are erpc, unless the options contain [`BY_PORT`].
    ///
    /// # Panics
    /// If tshark fails, or reports an error of the dissector.
    pub(crate) fn show(&self, options: &[&str]) -> Vec<Fields> {
        let file = Scratch::new();
        fs::write(&file.0, &self.bytes).expect("a writable folder for temporary files");
        let names = names();
        let mut command = Command::new("tshark");
        command.args(["-n", "-E", "separator=/t", "-E", "aggregator=;", "-T", "fields", "-X"]);
        command.arg(format!("lua_script:{}", script().display())).arg("-r").arg(&file.0);
        command.args(options);
        for name in &names {
            command.args(["-e", name]);
        }
        // Without preferences and plugins of the user.
        let home = env::temp_dir().join("erpc-no-such-home");
        command.env("HOME", &home).env("XDG_CONFIG_HOME", &home);
        let output = command.output().expect("tshark starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tshark: {said}");
        assert!(!said.contains("Lua"), "tshark: {said}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let rows: Vec<Fields> = text.lines().map(|line| row(&names, line)).collect();
        assert_eq!(rows.len(), self.frames, "lines of tshark");
        for (at, row) in rows.iter().enumerate() {
            let errors =
                row.get(EXPERT).is_some_and(|texts| texts.iter().any(|text| text.contains("Lua")));
            assert!(!errors, "frame {}: {:?}", at + 1, row[EXPERT]);
        }
        rows
    }
}

/// The fields of a frame, each with its values. Numbers are decimal, bytes hexadecimal.
pub(crate) type Fields = BTreeMap<String, Vec<String>>;

/// The texts of Wireshark's notes.
pub(crate) const EXPERT: &str = "_ws.expert.message";

/// Notes about the packet. The dissector has no more.
pub(crate) const NOTES: [&str; 3] = ["erpc.malformed", "erpc.checksum.bad", "erpc.cut"];

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/wireshark/erpc.lua")
}

/// The names of the fields that the dissector has, and of the notes.
pub(crate) fn names() -> Vec<String> {
    let script = fs::read_to_string(script()).expect("a readable dissector");
    let fields = script.lines().filter(|line| line.contains(" = ProtoField."));
    let names = fields.map(|line| line.split('"').nth(1).expect("a field has a name"));
    let others = NOTES.into_iter().chain([EXPERT]);
    names.chain(others).map(str::to_owned).collect()
}

fn row(names: &[String], line: &str) -> Fields {
    let columns: Vec<&str> = line.split('\t').collect();
    assert_eq!(columns.len(), names.len(), "columns in {line}");
    let filled = names.iter().zip(columns).filter(|(_, text)| !text.is_empty());
    filled.map(|(name, text)| (name.clone(), text.split(';').map(plain).collect())).collect()
}

/// A value without the format of its field. Versions of tshark write booleans differently.
fn plain(value: &str) -> String {
    match (value, value.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16))) {
        ("True", _) => "1".into(),
        ("False", _) => "0".into(),
        (_, Some(Ok(number))) => number.to_string(),
        _ => value.to_owned(),
    }
}

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("erpc-dissector-{}-{number}.pcap", std::process::id());
        Self(env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The file does not exist if writing it failed.
        fs::remove_file(&self.0).unwrap_or_default();
    }
}
