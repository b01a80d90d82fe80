//! Cancelling a statement: a second connection to the same server that says pid and secret.
//!
//! The request is encrypted like the session it is about, because the secret ends what runs
//! there. The server answers nothing; it closes the connection when the signal is sent.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connect::{self, Endpoint};
use crate::connect_options::ConnectOptions;
use crate::error::Error;

/// CancelRequest's code, 1234.5678.
const CANCEL_CODE: i32 = (1234 << 16) | 5678;

/// Cancels what runs on one session.
#[derive(Clone)]
pub struct CancelToken {
    options: ConnectOptions,
    endpoint: Endpoint,
    process_id: i32,
    secret_key: Bytes,
}

impl CancelToken {
    pub(crate) fn new(
        options: ConnectOptions,
        endpoint: Endpoint,
        process_id: i32,
        secret_key: Bytes,
    ) -> CancelToken {
        CancelToken {
            options,
            endpoint,
            process_id,
            secret_key,
        }
    }

    pub(crate) fn process_id(&self) -> i32 {
        self.process_id
    }

    /// Sends the request and waits until the server has taken it. Whether a statement was still
    /// running, and is ended by it, is seen on the session alone.
    pub async fn cancel(&self) -> Result<(), Error> {
        let limit = self.options.connect_timeout.unwrap_or(Duration::MAX);
        match tokio::time::timeout(limit, self.request()).await {
            Ok(result) => result,
            Err(_) => {
                let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "timeout expired");
                Err(self.endpoint.unreachable(source))
            }
        }
    }

    async fn request(&self) -> Result<(), Error> {
        let mut packet = Vec::with_capacity(16);
        packet.extend_from_slice(&(12 + self.secret_key.len() as u32).to_be_bytes());
        packet.extend_from_slice(&CANCEL_CODE.to_be_bytes());
        packet.extend_from_slice(&self.process_id.to_be_bytes());
        packet.extend_from_slice(&self.secret_key);
        let encrypted = self.endpoint.encrypted;
        let link = connect::open(&self.options, &self.endpoint, encrypted, None).await?;
        let lost = |source| self.endpoint.unreachable(source);
        let mut transport = link.transport;
        transport.write_all(&packet).await.map_err(lost)?;
        transport.flush().await.map_err(lost)?;
        // The end, in whatever form it comes, says that the request was taken.
        let mut rest = [0; 64];
        while let Ok(count) = transport.read(&mut rest).await {
            if count == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CancelToken(backend {})", self.process_id)
    }
}
