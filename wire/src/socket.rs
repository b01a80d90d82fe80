//! Opening a socket: names to addresses, keepalives, the receive buffer.
//!
//! The receive buffer is set only where the system grants the size asked for: asking for more
//! than the system's limit would leave the socket with that limit *and* without the kernel's own
//! growth, which is worse than not asking.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::sys::socket::SetSockOpt;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use crate::connect_options::{Host, TcpOptions};

/// Where servers put their socket: Debian's place, then PostgreSQL's own.
pub(crate) const DEFAULT_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// One place to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "socket \"{}\"", path.display()),
        }
    }
}

/// A socket that is open.
pub(crate) enum Open {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// All addresses of a host, in the resolver's order.
pub(crate) async fn addresses(host: &Host) -> io::Result<Vec<Address>> {
    if let Some(address) = host.address {
        return Ok(vec![Address::Tcp(SocketAddr::new(address, host.port))]);
    }
    let socket = |directory: &Path| directory.join(format!(".s.PGSQL.{}", host.port));
    if let Some(directory) = host.socket_directory() {
        return Ok(vec![Address::Unix(socket(directory))]);
    }
    let name = match host.name.as_str() {
        "" => {
            let mut sockets = DEFAULT_DIRECTORIES
                .iter()
                .map(|path| socket(Path::new(path)));
            if let Some(path) = sockets.find(|path| path.exists()) {
                return Ok(vec![Address::Unix(path)]);
            }
            "localhost"
        }
        name => name,
    };
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![Address::Tcp(SocketAddr::new(address, host.port))]);
    }
    let found = tokio::net::lookup_host((name, host.port)).await?;
    let found: Vec<Address> = found.map(Address::Tcp).collect();
    if found.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the name has no address",
        ));
    }
    Ok(found)
}

/// Connects to one address.
pub(crate) async fn open(
    address: &Address,
    tcp: &TcpOptions,
    receive_buffer_bytes: Option<usize>,
) -> io::Result<Open> {
    match address {
        Address::Unix(path) => UnixStream::connect(path).await.map(Open::Unix),
        Address::Tcp(address) => {
            let socket = match address {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            if let Some(bytes) = receive_buffer_bytes.filter(|bytes| is_granted(*bytes)) {
                SockRef::from(&socket).set_recv_buffer_size(bytes)?;
            }
            prepare(&socket, tcp)?;
            socket.connect(*address).await.map(Open::Tcp)
        }
    }
}

fn prepare(socket: &TcpSocket, tcp: &TcpOptions) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    if tcp.keepalives {
        let keepalive = TcpKeepalive::new()
            .with_time(tcp.keepalives_idle)
            .with_interval(tcp.keepalives_interval)
            .with_retries(tcp.keepalives_count);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    #[cfg(target_os = "linux")]
    if tcp.user_timeout.is_some() {
        socket.set_tcp_user_timeout(tcp.user_timeout)?;
    }
    Ok(())
}

/// SO_RCVLOWAT.
#[derive(Clone, Copy)]
struct LowWater;

nix::setsockopt_impl!(
    LowWater,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    i32,
    nix::sys::socket::sockopt::SetStruct<'_, i32>
);

/// The kernel wakes a reader only when so much has gathered. Unix sockets do not know it.
pub(crate) fn set_low_water(socket: &OwnedFd, bytes: i32) {
    if let Err(error) = LowWater.set(socket, &bytes) {
        tracing::debug!("could not set the low-water mark of a socket: {error}");
    }
}

/// Tries the size on a socket that is never connected.
fn is_granted(bytes: usize) -> bool {
    let Ok(socket) = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)) else {
        return false;
    };
    // Linux keeps twice what was asked for and reports that.
    socket.set_recv_buffer_size(bytes).is_ok()
        && socket
            .recv_buffer_size()
            .is_ok_and(|granted| granted >= bytes)
}
