//! A replication connection that does nothing but to take one of the server's walsenders.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PROTOCOL: i32 = 3 << 16;

/// A walsender in use until it is dropped.
pub struct Walsender {
    _connection: TcpStream,
}

impl Walsender {
    /// Takes a walsender of the server of a URL, if one is free.
    async fn take(url: &str) -> Option<Self> {
        let authority = url.split('/').nth(2).expect("an authority");
        let (user, address) = authority.split_once('@').expect("a user");
        let mut connection = TcpStream::connect(address).await.unwrap();
        let parameters = format!("user\0{user}\0replication\0true\0\0");
        let length = 4 + 4 + i32::try_from(parameters.len()).unwrap();
        let startup = [
            &length.to_be_bytes()[..],
            &PROTOCOL.to_be_bytes(),
            parameters.as_bytes(),
        ]
        .concat();
        connection.write_all(&startup).await.unwrap();
        // Messages follow until it is ready; an error is the last one.
        loop {
            let kind = connection.read_u8().await.unwrap();
            let length = connection.read_u32().await.unwrap() - 4;
            let mut message = vec![0; length as usize];
            connection.read_exact(&mut message).await.unwrap();
            match kind {
                b'Z' => {
                    break Some(Self {
                        _connection: connection,
                    });
                }
                b'E' => break None,
                _ => {}
            }
        }
    }

    /// Takes all that are free.
    pub async fn take_all(url: &str) -> Vec<Self> {
        let mut taken = Vec::new();
        while let Some(one) = Self::take(url).await {
            taken.push(one);
        }
        taken
    }
}
