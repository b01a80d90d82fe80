//! Authentication: cleartext, MD5, SCRAM-SHA-256 with and without channel binding.
//!
//! A pure machine: bodies of Authentication messages in, answers out. Its rule: after SASL has
//! begun, "ok" counts only when the server's proof was checked; where channel binding is
//! required, nothing but SCRAM-SHA-256-PLUS counts.

use bytes::{Buf, BytesMut};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding as Binding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::frontend;

use crate::connect::Link;
use crate::connect_options::{ChannelBinding, ConnectOptions};
use crate::error::Error;

/// What is said of a password that is asked for and not known.
pub(crate) const NO_PASSWORD: &str = "the server asks for a password and none was given";

/// What to do after a message.
pub(crate) enum Step {
    /// The server lets us in.
    Done,
    /// Nothing; another message follows.
    Wait,
    /// Send this.
    Answer(BytesMut),
}

enum State {
    /// Nothing was asked yet.
    Begun,
    /// A password was sent.
    PasswordSent,
    /// SASL's first message was sent.
    ScramBegun(ScramSha256),
    /// The proof was sent, the server's is waited for.
    ScramProved(ScramSha256),
    /// The server has proved itself.
    ScramDone,
}

/// One authentication.
pub(crate) struct Authentication<'a> {
    server: String,
    options: &'a ConnectOptions,
    password: Option<String>,
    server_end_point: Option<Vec<u8>>,
    encrypted: bool,
    bound: bool,
    state: State,
}

impl<'a> Authentication<'a> {
    pub(crate) fn new(link: &Link, options: &'a ConnectOptions) -> Authentication<'a> {
        Authentication {
            server: link.endpoint.name(),
            options,
            password: link.password.clone(),
            server_end_point: link.server_end_point.clone(),
            encrypted: link.endpoint.encrypted,
            bound: false,
            state: State::Begun,
        }
    }

    /// Takes the body of an Authentication message.
    pub(crate) fn step(&mut self, mut body: &[u8]) -> Result<Step, Error> {
        let kind = body.try_get_i32().map_err(|_| cut())?;
        match (kind, std::mem::replace(&mut self.state, State::Begun)) {
            (0, state) => self.finish(&state),
            (3, State::Begun) => self.cleartext(),
            (5, State::Begun) => self.md5(body),
            (10, State::Begun) => self.scram_begin(body),
            (11, State::ScramBegun(scram)) => self.scram_prove(scram, body),
            (12, State::ScramProved(scram)) => self.scram_check(scram, body),
            (2 | 6..=9, _) => Err(self.refuse(
                "the server asks for a method (Kerberos, GSSAPI or SSPI) that is not supported",
            )),
            (3 | 5 | 10 | 11 | 12, _) => Err(Error::Protocol(format!(
                "authentication request {kind} out of order"
            ))),
            _ => Err(self.refuse(&format!("authentication method {kind} is not supported"))),
        }
    }

    fn finish(&mut self, state: &State) -> Result<Step, Error> {
        match state {
            State::Begun if !self.options.allowed.none => {
                return Err(self.refuse(
                    "the server asks for no authentication, which require_auth does not allow",
                ));
            }
            State::ScramBegun(_) | State::ScramProved(_) => {
                return Err(self.refuse("the server ends SCRAM without proving itself"));
            }
            State::Begun | State::PasswordSent | State::ScramDone => {}
        }
        if self.options.channel_binding == ChannelBinding::Require && !self.bound {
            return Err(self.refuse(
                "channel binding is required, but the server authenticated us without it",
            ));
        }
        Ok(Step::Done)
    }

    fn cleartext(&mut self) -> Result<Step, Error> {
        self.allow(self.options.allowed.password, "a cleartext password")?;
        let password = self.password()?.to_owned();
        self.state = State::PasswordSent;
        self.password_message(password.as_bytes())
    }

    fn md5(&mut self, body: &[u8]) -> Result<Step, Error> {
        self.allow(self.options.allowed.md5, "an MD5 password")?;
        let salt = <[u8; 4]>::try_from(body).map_err(|_| cut())?;
        let hash = md5_hash(
            self.options.user.as_bytes(),
            self.password()?.as_bytes(),
            salt,
        );
        self.state = State::PasswordSent;
        self.password_message(hash.as_bytes())
    }

    fn password_message(&self, password: &[u8]) -> Result<Step, Error> {
        if self.options.channel_binding == ChannelBinding::Require {
            return Err(
                self.refuse("channel binding is required, but the server asks for a password")
            );
        }
        let mut answer = BytesMut::new();
        frontend::password_message(password, &mut answer).map_err(|error| self.told(&error))?;
        Ok(Step::Answer(answer))
    }

    fn scram_begin(&mut self, body: &[u8]) -> Result<Step, Error> {
        self.allow(self.options.allowed.scram, "SCRAM-SHA-256")?;
        let mut mechanisms = body.split(|&byte| byte == 0);
        let offers = |wanted: &str| {
            let mut names = mechanisms.clone();
            names.any(|name| name == wanted.as_bytes())
        };
        let (plus, plain) = (offers(SCRAM_SHA_256_PLUS), offers(SCRAM_SHA_256));
        mechanisms.next().ok_or_else(cut)?;
        let wanted = self.options.channel_binding;
        let end_point = self
            .server_end_point
            .take()
            .filter(|_| wanted != ChannelBinding::Disable);
        let (mechanism, binding) = match (plus, plain, end_point) {
            (true, _, Some(hash)) => (SCRAM_SHA_256_PLUS, Binding::tls_server_end_point(hash)),
            _ if wanted == ChannelBinding::Require => {
                return Err(self.refuse(if self.encrypted {
                    "channel binding is required, but the server does not offer it"
                } else {
                    "channel binding is required, but the connection is not encrypted"
                }));
            }
            // We could bind and the server does not offer it: say so, so that a forged list of
            // mechanisms is noticed.
            (false, true, Some(_)) => (SCRAM_SHA_256, Binding::unrequested()),
            (_, true, None) => (SCRAM_SHA_256, Binding::unsupported()),
            _ => return Err(self.refuse("none of the server's SASL mechanisms is supported")),
        };
        self.bound = mechanism == SCRAM_SHA_256_PLUS;
        let scram = ScramSha256::new(self.password()?.as_bytes(), binding);
        let mut answer = BytesMut::new();
        frontend::sasl_initial_response(mechanism, scram.message(), &mut answer)
            .map_err(|error| self.told(&error))?;
        self.state = State::ScramBegun(scram);
        Ok(Step::Answer(answer))
    }

    fn scram_prove(&mut self, mut scram: ScramSha256, body: &[u8]) -> Result<Step, Error> {
        scram.update(body).map_err(|error| self.told(&error))?;
        let mut answer = BytesMut::new();
        frontend::sasl_response(scram.message(), &mut answer).map_err(|error| self.told(&error))?;
        self.state = State::ScramProved(scram);
        Ok(Step::Answer(answer))
    }

    fn scram_check(&mut self, mut scram: ScramSha256, body: &[u8]) -> Result<Step, Error> {
        scram.finish(body).map_err(|error| self.told(&error))?;
        self.state = State::ScramDone;
        Ok(Step::Wait)
    }

    fn password(&self) -> Result<&str, Error> {
        match self.password.as_deref() {
            Some(password) if !password.is_empty() => Ok(password),
            _ => Err(self.refuse(NO_PASSWORD)),
        }
    }

    fn allow(&self, allowed: bool, method: &str) -> Result<(), Error> {
        if allowed {
            return Ok(());
        }
        Err(self.refuse(&format!(
            "the server asks for {method}, which require_auth does not allow"
        )))
    }

    fn refuse(&self, message: &str) -> Error {
        let server = self.server.clone();
        Error::Authentication {
            server,
            message: message.to_owned(),
            error: None,
        }
    }

    fn told(&self, error: &std::io::Error) -> Error {
        self.refuse(&error.to_string())
    }
}

fn cut() -> Error {
    Error::Protocol("an authentication request that cannot be read".to_owned())
}
