//! Where a listener can be reached, and the unique id that carries the first one between ranks.

use super::wire::{Reader, Writer};
use crate::error::{Error, Kind, Result, ensure};
use crate::platform::process::{Watched, interface_addresses};
use crate::settings;
use once_cell::race::OnceBox;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;

const VERSION: u8 = 1;
const MOST_ADDRESSES: usize = 4;
pub const COOKIE_BYTES: usize = 16;

/// A secret that connections must show.
pub type Cookie = [u8; COOKIE_BYTES];

/// The rendezvous token that C callers carry between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueId(pub [u8; 128]);

/// What a unique id holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub cookie: Cookie,
    pub place: Place,
}

/// A listener: the machine it is on and its addresses. The default is no listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Hash of the kernel's boot id (the real one).
    pub boot: u64,
    /// Inode of the network namespace.
    pub network: u64,
    pub port: u16,
    /// Routable addresses, at most 4.
    pub addresses: Vec<IpAddr>,
}

/// Fresh random bytes.
pub fn new_cookie() -> Result<Cookie> {
    let mut cookie = [0u8; COOKIE_BYTES];
    rustix::rand::getrandom(&mut cookie, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Error::system("getrandom", e))?;
    Ok(cookie)
}

/// FNV-1a, 64 bits: tells texts and damaged ids apart, no secret.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The kernel's boot id, whatever `WHOLEMEMORY_BOOTID` says. Read once: it decides where ranks find each other, also of a process
/// that has no descriptor left to read it with. Empty where the system shows none.
/// # Errors
/// SYSTEM_ERROR where there is no descriptor for the first reading.
pub fn real_boot_id() -> Result<&'static str> {
    static READ: OnceBox<String> = OnceBox::new();
    READ.get_or_try_init(|| {
        let path = "/proc/sys/kernel/random/boot_id";
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Box::new(text.split_whitespace().next().unwrap_or("").to_owned())),
            Err(e) if is_short_of_files(&e) => Err(Error::system(format!("reading {path}"), e)),
            Err(_) => Ok(Box::default()),
        }
    })
    .map(String::as_str)
}

/// Whether a call failed because this process, or the system, has no descriptor left.
pub fn is_short_of_files(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(code) if code == Errno::MFILE.raw_os_error() || code == Errno::NFILE.raw_os_error())
}

/// The addresses of this machine, each with its interface's name.
/// # Errors
/// SYSTEM_ERROR where there is no descriptor to ask the system with.
fn own_addresses() -> Result<Vec<(String, IpAddr)>> {
    let found = interface_addresses();
    if found.is_empty() {
        // None on a machine without a network, or none that could be asked for.
        let missing = |e| Error::system("listing the addresses of this machine", std::io::Error::from(e));
        drop(Watched::open(|| eventfd(0, EventfdFlags::CLOEXEC)).map_err(missing)?);
    }
    Ok(found)
}

fn network_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino())
}

/// Whether a list of interfaces, written as NCCL_SOCKET_IFNAME is, takes in `name`: beginnings of names with commas between,
/// after `=` whole names, after `^` (or `^=`) those that are left out.
fn selects(list: &str, name: &str) -> bool {
    let (others, list) = match list.trim().strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, list.trim()),
    };
    let (whole, list) = match list.strip_prefix('=') {
        Some(rest) => (true, rest),
        None => (false, list),
    };
    let mut words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let named = words.any(|word| {
        if whole {
            name == word
        } else {
            name.starts_with(word)
        }
    });
    named != others
}

impl Place {
    /// The place of a listener of this process.
    pub fn of(listener: &TcpListener) -> Result<Place> {
        let port = listener
            .local_addr()
            .map_err(|e| Error::system("getsockname", e))?
            .port();
        let wanted = settings::socket_interface();
        let mut addresses: Vec<IpAddr> = own_addresses()?
            .into_iter()
            .filter(|(name, _)| wanted.as_deref().is_none_or(|list| selects(list, name)))
            .map(|(_, ip)| ip)
            .collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        addresses.truncate(MOST_ADDRESSES);
        Ok(Place {
            boot: hash(real_boot_id()?.as_bytes()),
            network: network_namespace(),
            port,
            addresses,
        })
    }

    /// Where to connect from this process: loopback alone inside one network namespace of one machine.
    /// # Errors
    /// SYSTEM_ERROR where there is no descriptor left to learn which machine this is.
    pub fn candidates(&self) -> Result<Vec<SocketAddr>> {
        if self.boot == hash(real_boot_id()?.as_bytes()) && self.network == network_namespace() {
            return Ok(vec![
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.port),
                SocketAddr::new(Ipv6Addr::LOCALHOST.into(), self.port),
            ]);
        }
        Ok(self
            .addresses
            .iter()
            .map(|ip| SocketAddr::new(*ip, self.port))
            .collect())
    }

    pub fn write(&self, writer: Writer) -> Writer {
        let writer = writer
            .u64(self.boot)
            .u64(self.network)
            .u32(u32::from(self.port))
            .u32(self.addresses.len() as u32);
        self.addresses.iter().fold(writer, |w, ip| {
            let mapped = match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => *v6,
            };
            let bits = mapped.to_bits();
            w.u64(bits as u64).u64((bits >> 64) as u64)
        })
    }

    pub fn read(reader: &mut Reader<'_>) -> Option<Place> {
        let (boot, network) = (reader.u64()?, reader.u64()?);
        let port = u16::try_from(reader.u32()?).ok()?;
        let count = reader.u32()? as usize;
        let mut addresses = Vec::new();
        for _ in 0..count.min(MOST_ADDRESSES) {
            let bits = u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64;
            addresses.push(IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical());
        }
        Some(Place {
            boot,
            network,
            port,
            addresses,
        })
    }
}

/// A listener on every address of this machine, IPv6 and IPv4 where both are there.
pub fn listen() -> Result<Watched<TcpListener>> {
    let failed = |e: std::io::Error| Error::system("opening a TCP listener", e);
    let bound = || {
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
    };
    let listener = Watched::open(bound).map_err(failed)?;
    // All ranks of a large job connect at once, before the first is taken.
    rustix::net::listen(&*listener, 4096).map_err(|e| failed(e.into()))?;
    Ok(listener)
}

impl Token {
    /// version, cookie, place; a hash of all that in the last 8 bytes.
    pub fn encode(&self) -> UniqueId {
        let body = self.place.write(Writer::default().bytes(&self.cookie)).0;
        let mut bytes = [0u8; 128];
        bytes[0] = VERSION;
        bytes[1..1 + body.len()].copy_from_slice(&body);
        let sum = hash(&bytes[..120]);
        bytes[120..].copy_from_slice(&sum.to_le_bytes());
        UniqueId(bytes)
    }

    /// # Errors
    /// INVALID_VALUE for bytes that no `wholememory_create_unique_id` wrote.
    pub fn decode(id: &UniqueId) -> Result<Token> {
        let bytes = &id.0;
        let bad = || {
            Error::new(
                Kind::InvalidValue,
                "the unique id was not made by wholememory_create_unique_id (or was damaged on its way)",
            )
        };
        ensure!(
            hash(&bytes[..120]).to_le_bytes() == bytes[120..],
            InvalidValue,
            "{}",
            bad().what
        );
        ensure!(
            bytes[0] == VERSION,
            InvalidValue,
            "the unique id has version {}, this library makes {VERSION}",
            bytes[0]
        );
        let mut reader = Reader(&bytes[1..120]);
        let cookie = reader
            .bytes()
            .and_then(|b| Cookie::try_from(b).ok())
            .ok_or_else(bad)?;
        Ok(Token {
            cookie,
            place: Place::read(&mut reader).ok_or_else(bad)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_chosen_as_nccl_does() {
        let names = ["eth0", "eth1", "eth10", "ib0", "lo"];
        let cases: [(&str, &[&str]); 8] = [
            ("eth", &["eth0", "eth1", "eth10"]),
            ("eth1", &["eth1", "eth10"]),
            ("=eth1", &["eth1"]),
            ("=eth1,ib0", &["eth1", "ib0"]),
            ("ib, lo", &["ib0", "lo"]),
            ("^eth,lo", &["ib0"]),
            ("^=eth1", &["eth0", "eth10", "ib0", "lo"]),
            ("wlan", &[]),
        ];
        for (list, wanted) in cases {
            let chosen: Vec<&str> = names.into_iter().filter(|name| selects(list, name)).collect();
            assert_eq!(chosen, wanted, "{list}");
        }
    }

    #[test]
    fn a_token_of_the_largest_size_survives_its_128_bytes() {
        let addresses = vec![IpAddr::from([7u8; 16]); MOST_ADDRESSES];
        let token = Token {
            cookie: [9; 16],
            place: Place {
                boot: u64::MAX,
                network: 1 << 60,
                port: 65535,
                addresses,
            },
        };
        assert_eq!(Token::decode(&token.encode()).unwrap(), token);
    }

    #[test]
    fn damaged_and_empty_ids_are_refused() {
        assert_eq!(
            Token::decode(&UniqueId([0; 128])).unwrap_err().kind,
            Kind::InvalidValue
        );
        let place = Place::of(&listen().unwrap()).unwrap();
        let mut id = Token {
            cookie: [1; 16],
            place,
        }
        .encode();
        id.0[5] ^= 1;
        assert_eq!(Token::decode(&id).unwrap_err().kind, Kind::InvalidValue);
    }
}
