//! The handlers of the server.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use erpc::{Code, Incoming, Outgoing, Request, Response, Status};

use crate::plan::{Plan, Turn, Typed, failure, items, turns};

/// The responses of handlers, and the requests that they expect.
#[derive(Debug)]
pub struct Answers {
    plan: Plan,
    /// The seed of the next call of each method.
    announced: Mutex<HashMap<&'static str, u64>>,
    /// The number of calls that each method's handler has received.
    served: Mutex<HashMap<&'static str, u32>>,
}

impl Answers {
    /// Creates answers for `plan`; no call is announced yet.
    pub fn new(plan: Plan) -> Self {
        Self { plan, announced: Mutex::default(), served: Mutex::default() }
    }

    /// The messages of all calls.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Announces the next call of a method, by its seed. A method has one call at a time.
    pub fn announce(&self, method: &'static str, seed: u64) {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner).insert(method, seed);
    }

    /// The number of calls of the method that its handler has received.
    pub fn served(&self, method: &str) -> u32 {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.get(method).copied().unwrap_or(0)
    }

    /// Handles a unary call.
    ///
    /// # Errors
    /// The planned failure, or `DATA_LOSS` if the request is not the announced one.
    pub fn unary<Req: Typed, Resp: Typed>(
        &self,
        method: &'static str,
        request: Request<'_, Req>,
    ) -> Result<Response<Resp>, Status> {
        let seed = self.take(method)?;
        self.check(method, seed, 0, request.message())?;
        failure(seed).map_or(Ok(()), Err)?;
        self.response(method, seed, 0).map(Response::new)
    }

    /// Handles a call whose responses are a stream.
    ///
    /// # Errors The errors of [`Answers::unary`], and an error if the caller does not read the
    /// responses.
    pub async fn server_streaming<Req: Typed, Resp: Typed>(
        &self,
        method: &'static str,
        request: Request<'_, Req>,
        out: Outgoing<Resp>,
    ) -> Result<(), Status> {
        let seed = self.take(method)?;
        self.check(method, seed, 0, request.message())?;
        drop(request);
        for at in 0..items(seed, true) {
            out.send(&self.response(method, seed, at)?).await?;
        }
        failure(seed).map_or(Ok(()), Err)
    }

    /// Handles a call whose requests are a stream.
    ///
    /// # Errors
    /// The errors of [`Answers::unary`], and an error if there are too few requests or too many.
    pub async fn client_streaming<Req: Typed, Resp: Typed>(
        &self,
        method: &'static str,
        request: Request<'_, Incoming<Req>>,
    ) -> Result<Response<Resp>, Status> {
        let seed = self.take(method)?;
        let mut requests = request.into_message();
        for at in 0..items(seed, false) {
            self.check_next(method, seed, at, &mut requests).await?;
        }
        nothing(&mut requests).await?;
        failure(seed).map_or(Ok(()), Err)?;
        self.response(method, seed, 0).map(Response::new)
    }

    /// Handles a call whose requests and responses are streams, in the planned order of items.
    ///
    /// # Errors
    /// The errors of [`Answers::unary`], and an error if there are too few requests or too many.
    pub async fn bidi_streaming<Req: Typed, Resp: Typed>(
        &self,
        method: &'static str,
        request: Request<'_, Incoming<Req>>,
        out: Outgoing<Resp>,
    ) -> Result<(), Status> {
        let seed = self.take(method)?;
        let mut requests = request.into_message();
        for turn in turns(seed) {
            match turn {
                Turn::Request(at) => self.check_next(method, seed, at, &mut requests).await?,
                Turn::Response(at) => out.send(&self.response(method, seed, at)?).await?,
            }
        }
        nothing(&mut requests).await?;
        failure(seed).map_or(Ok(()), Err)
    }

    async fn check_next<M: Typed>(
        &self,
        method: &str,
        seed: u64,
        at: u64,
        requests: &mut Incoming<M>,
    ) -> Result<(), Status> {
        let got =
            requests.next().await?.ok_or_else(|| wrong(format!("request {at} is missing")))?;
        self.check(method, seed, at, &got)
    }

    fn take(&self, method: &'static str) -> Result<u64, Status> {
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        let seed = announced.remove(method).ok_or_else(|| wrong("the call is not announced"))?;
        *self.served.lock().unwrap_or_else(PoisonError::into_inner).entry(method).or_default() += 1;
        Ok(seed)
    }

    fn check<M: Typed>(&self, method: &str, seed: u64, at: u64, got: &M) -> Result<(), Status> {
        let expected: M = self.plan.request(method, seed, at).map_err(wrong)?;
        let differs = || format!("request {at} arrived as {got:?}, was sent as {expected:?}");
        if *got == expected { Ok(()) } else { Err(wrong(differs())) }
    }

    fn response<M: Typed>(&self, method: &str, seed: u64, at: u64) -> Result<M, Status> {
        self.plan.response(method, seed, at).map_err(wrong)
    }
}

async fn nothing<M: Typed>(requests: &mut Incoming<M>) -> Result<(), Status> {
    let got = requests.next().await?;
    got.map_or(Ok(()), |got| Err(wrong(format!("one request too many: {got:?}"))))
}

fn wrong(what: impl Into<String>) -> Status {
    Status::new(Code::DataLoss, what.into())
}
