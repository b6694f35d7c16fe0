//! Targets: server names and addresses that resolve to routes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};

use crate::transport::mem::MemRoute;
use crate::transport::udp::UdpRoute;

/// The argument of [`Endpoint::connect`](crate::endpoint::Endpoint::connect), and the address that
/// a [`Server`](crate::server::Server) listens on: anything that resolves to routes of the
/// transport. For UDP, the types of the standard library that
/// implement [`ToSocketAddrs`]: `"10.0.0.7:31850"`, `("node7", 31850)`, a `SocketAddr`.
pub trait Target<R> {
    /// The routes to try, in order.
    ///
    /// # Errors
    /// If a name cannot be resolved, or is not written as `host:port`.
    fn routes(&self) -> io::Result<Vec<R>>;

    /// The name or address, for the messages of errors. Default: empty.
    fn name(&self) -> String {
        String::new()
    }
}

impl Target<UdpRoute> for str {
    fn routes(&self) -> io::Result<Vec<UdpRoute>> {
        check(self)?;
        resolve(self)
    }

    fn name(&self) -> String {
        self.to_owned()
    }
}

impl Target<UdpRoute> for String {
    fn routes(&self) -> io::Result<Vec<UdpRoute>> {
        self.as_str().routes()
    }

    fn name(&self) -> String {
        self.clone()
    }
}

/// A target that is a host and a port.
macro_rules! host_and_port {
    ($($host:ty),*) => {
        $(
            impl Target<UdpRoute> for ($host, u16) {
                fn routes(&self) -> io::Result<Vec<UdpRoute>> {
                    resolve((&*self.0, self.1))
                }

                fn name(&self) -> String {
                    format!("{}:{}", self.0, self.1)
                }
            }
        )*
    };
}

host_and_port!(&str, String);

/// A target that is an address.
macro_rules! address {
    ($($address:ty),*) => {
        $(
            impl Target<UdpRoute> for $address {
                fn routes(&self) -> io::Result<Vec<UdpRoute>> {
                    Ok(vec![SocketAddr::from(*self).into()])
                }

                fn name(&self) -> String {
                    SocketAddr::from(*self).to_string()
                }
            }
        )*
    };
}

address!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl Target<UdpRoute> for [SocketAddr] {
    fn routes(&self) -> io::Result<Vec<UdpRoute>> {
        Ok(self.iter().copied().map(UdpRoute::from).collect())
    }

    fn name(&self) -> String {
        let names: Vec<_> = self.iter().map(SocketAddr::to_string).collect();
        names.join(", ")
    }
}

impl<R, A: Target<R> + ?Sized> Target<R> for &A {
    fn routes(&self) -> io::Result<Vec<R>> {
        (**self).routes()
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

/// A target that is a route.
macro_rules! route {
    ($($route:ty),*) => {
        $(
            impl Target<Self> for $route {
                fn routes(&self) -> io::Result<Vec<Self>> {
                    Ok(vec![*self])
                }

                fn name(&self) -> String {
                    self.to_string()
                }
            }
        )*
    };
}

route!(UdpRoute, MemRoute);

fn resolve(name: impl ToSocketAddrs) -> io::Result<Vec<UdpRoute>> {
    Ok(name.to_socket_addrs()?.map(UdpRoute::from).collect())
}

/// Refuses a text that is no `host:port`, and says how to write it.
fn check(text: &str) -> io::Result<()> {
    if text.parse::<SocketAddr>().is_ok() {
        return Ok(());
    }
    let flaw = if let Some((scheme, rest)) = text.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        format!("`{scheme}://` belongs to a URL, and erpc is not HTTP; write {}", with_port(host))
    } else if text.parse::<Ipv6Addr>().is_ok() {
        format!("an IPv6 address with a port has brackets; write [{text}]:PORT")
    } else if text.is_empty() {
        "it is empty; write HOST:PORT".into()
    } else if let Some(port) = text.strip_prefix(':') {
        let port = if port.parse::<u16>().is_ok() { port } else { "PORT" };
        format!("it has no host; write HOST:{port}")
    } else if let Some(port) = port_out_of_range(text) {
        format!("port {port} is above 65535; write {}", with_port(text))
    } else if !has_port(text) {
        format!("it has no port number; write {}", with_port(text))
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, flaw))
}

fn has_port(text: &str) -> bool {
    let parts = text.rsplit_once(':').filter(|_| !text.ends_with(']'));
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// The digits after the last colon, if they are no port because the number is too large.
fn port_out_of_range(text: &str) -> Option<&str> {
    let (_, port) = text.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && port.parse::<u16>().is_err()).then_some(port)
}

/// `text` as a user should write it.
fn with_port(text: &str) -> String {
    match text.rsplit_once(':') {
        _ if has_port(text) => text.to_owned(),
        Some((host, _)) if !text.ends_with(']') => format!("{host}:PORT"),
        _ => format!("{text}:PORT"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Option<String> {
        check(text).err().map(|error| error.to_string())
    }

    #[test]
    fn a_text_that_is_no_host_and_port_is_refused_with_the_right_spelling() {
        let url = "belongs to a URL, and erpc is not HTTP; write";
        for (text, flaw) in [
            ("http://node7:31850", format!("`http://` {url} node7:31850")),
            ("http://node7:31850/path?a=b", format!("`http://` {url} node7:31850")),
            ("https://user@node7", format!("`https://` {url} node7:PORT")),
            ("grpc://[::1]:7/", format!("`grpc://` {url} [::1]:7")),
            ("node7", "it has no port number; write node7:PORT".into()),
            ("node7:", "it has no port number; write node7:PORT".into()),
            ("node7:http", "it has no port number; write node7:PORT".into()),
            ("[::1]", "it has no port number; write [::1]:PORT".into()),
            ("node7:65536", "port 65536 is above 65535; write node7:PORT".into()),
            ("127.0.0.1:99999", "port 99999 is above 65535; write 127.0.0.1:PORT".into()),
            ("[::1]:99999", "port 99999 is above 65535; write [::1]:PORT".into()),
            ("http://node7:99999", format!("`http://` {url} node7:PORT")),
            ("", "it is empty; write HOST:PORT".into()),
            (":", "it has no host; write HOST:PORT".into()),
            (":31850", "it has no host; write HOST:31850".into()),
            (":99999", "it has no host; write HOST:PORT".into()),
            ("::1", "an IPv6 address with a port has brackets; write [::1]:PORT".into()),
        ] {
            assert_eq!(refusal(text), Some(flaw), "{text}");
        }
        for text in ["node7:31850", "10.0.0.7:31850", "[::1]:31850", "localhost:0"] {
            assert_eq!(refusal(text), None, "{text}");
        }
    }

    #[test]
    fn the_types_of_the_standard_library_are_targets_with_names() {
        fn named(target: impl Target<UdpRoute>) -> (String, usize) {
            (target.name(), target.routes().expect("an address").len())
        }
        let address: SocketAddr = ([127, 0, 0, 1], 7).into();
        let name = || ("127.0.0.1:7".to_owned(), 1);
        assert_eq!(named("127.0.0.1:7"), name());
        assert_eq!(named(String::from("127.0.0.1:7")), name());
        assert_eq!(named(String::from("127.0.0.1:7")), name());
        assert_eq!(named(("127.0.0.1", 7)), name());
        assert_eq!(named((String::from("127.0.0.1"), 7)), name());
        assert_eq!(named(address), name());
        assert_eq!(named((address.ip(), 7)), name());
        assert_eq!(named((Ipv4Addr::LOCALHOST, 7)), name());
        assert_eq!(named(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7)), name());
        assert_eq!(named(&[address][..]), name());
        assert_eq!(named((Ipv6Addr::LOCALHOST, 7)), ("[::1]:7".to_owned(), 1));
    }
}
