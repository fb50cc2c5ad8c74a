//! The trait that all backends implement.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use crate::{Element, Pending, ReduceOp, Result};

/// A group of ranks that exchange data.
///
/// Every rank of the communicator makes the same collective calls in the same order; ranks in
/// arguments (`root`, `peer`) count within the communicator. Each call opens its own span.
///
/// Code written against this trait runs on every backend: buffers live where the backend needs them,
/// and are filled and read through [`alloc_from`](Self::alloc_from), [`write`](Self::write),
/// [`read`](Self::read) and [`to_vec`](Self::to_vec).
///
/// ```
/// use commtrace_collectives::{Communicator, LocalComm, ReduceOp, Result};
///
/// fn mean<C: Communicator>(comm: &C, values: &[f32]) -> Result<Vec<f32>> {
///     let send = comm.alloc_from(values)?;
///     let mut mean = comm.alloc_zeros(values.len())?;
///     comm.all_reduce(&send, &mut mean, &ReduceOp::Avg)?;
///     comm.to_vec(&mean)
/// }
///
/// let means = LocalComm::run(2, |comm| mean(&comm, &[comm.rank() as f32, 1.0]));
/// assert_eq!(means, [Ok(vec![0.5, 1.0]), Ok(vec![0.5, 1.0])]);
/// ```
///
/// # Blocking calls
///
/// When a blocking call returns, the backend has finished with the buffers (host memory) or has
/// enqueued the work on the communicator's stream, in whose order the result can be used (device
/// memory). Arguments and their order are those of `cudarc::nccl::Comm`.
///
/// # Non-blocking calls
///
/// The forms that end in `_async` own their buffers and return a [`Pending`], whose
/// [`wait`](Pending::wait) gives them back. The calls of one rank on one communicator, blocking or
/// not, take effect in the order in which they were made.
///
/// # Errors
///
/// Where the ranks disagree on a call, where an argument of one of them is wrong, or where one of
/// them never makes the call, every rank that makes the call gets an error. See [`Error`](crate::Error).
pub trait Communicator {
    /// What a call reads or writes: `[T]` in host memory.
    type Buffer<T: Element>: ?Sized;

    /// A buffer that owns its memory: `Vec<T>` in host memory.
    type Owned<T: Element>: Deref<Target = Self::Buffer<T>> + DerefMut + Send + 'static;

    /// What [`group`](Self::group) passes to its closure.
    type Group<'g>: Group<'g, Self>
    where
        Self: 'g;

    /// This rank's number within the communicator.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// The name that spans carry in `comm`, equal on all ranks.
    fn name(&self) -> &str;

    /// A buffer of `len` zeros.
    fn alloc_zeros<T: Element>(&self, len: usize) -> Result<Self::Owned<T>>;

    /// A buffer with a copy of `data`.
    fn alloc_from<T: Element>(&self, data: &[T]) -> Result<Self::Owned<T>>;

    /// Copies `data` into `buffer`, which must have the same length.
    fn write<T: Element>(&self, data: &[T], buffer: &mut Self::Buffer<T>) -> Result<()>;

    /// Copies `buffer` into `data`, which must have the same length. Waits for calls that still write
    /// `buffer`.
    fn read<T: Element>(&self, buffer: &Self::Buffer<T>, data: &mut [T]) -> Result<()>;

    /// A copy of `buffer` in host memory. Waits for calls that still write `buffer`.
    fn to_vec<T: Element>(&self, buffer: &Self::Buffer<T>) -> Result<Vec<T>>;

    /// Reduces `send` over all ranks into every rank's `recv`. Both have the same length.
    fn all_reduce<T: Element>(
        &self,
        send: &Self::Buffer<T>,
        recv: &mut Self::Buffer<T>,
        op: &ReduceOp,
    ) -> Result<()>;

    /// Reduces `buffer` over all ranks, in place.
    fn all_reduce_in_place<T: Element>(&self, buffer: &mut Self::Buffer<T>, op: &ReduceOp) -> Result<()>;

    /// Reduces `send` over all ranks into the root's `recv`, which other ranks need not give.
    fn reduce<T: Element>(
        &self,
        send: &Self::Buffer<T>,
        recv: Option<&mut Self::Buffer<T>>,
        op: &ReduceOp,
        root: usize,
    ) -> Result<()>;

    /// Reduces `buffer` over all ranks into the root's `buffer`; that of other ranks is left as it is.
    fn reduce_in_place<T: Element>(
        &self,
        buffer: &mut Self::Buffer<T>,
        op: &ReduceOp,
        root: usize,
    ) -> Result<()>;

    /// Gathers all ranks' `send`, in rank order, into every rank's `recv`, which is `size` times as long.
    fn all_gather<T: Element>(&self, send: &Self::Buffer<T>, recv: &mut Self::Buffer<T>) -> Result<()>;

    /// Reduces `send` over all ranks and leaves in `recv` this rank's part; `send` is `size` times as
    /// long.
    fn reduce_scatter<T: Element>(
        &self,
        send: &Self::Buffer<T>,
        recv: &mut Self::Buffer<T>,
        op: &ReduceOp,
    ) -> Result<()>;

    /// Copies the root's `send` into every rank's `recv`. Other ranks need not give `send`.
    fn broadcast<T: Element>(
        &self,
        send: Option<&Self::Buffer<T>>,
        recv: &mut Self::Buffer<T>,
        root: usize,
    ) -> Result<()>;

    /// Copies the root's `buffer` into every other rank's.
    fn broadcast_in_place<T: Element>(&self, buffer: &mut Self::Buffer<T>, root: usize) -> Result<()>;

    /// Sends the `i`th of `size` equal parts of `send` to rank `i`, and receives rank `i`'s part at the same
    /// place of `recv`.
    fn all_to_all<T: Element>(&self, send: &Self::Buffer<T>, recv: &mut Self::Buffer<T>) -> Result<()>;

    /// As [`all_to_all`](Self::all_to_all) with parts of any length: `send_counts[i]` elements go to rank `i`,
    /// `recv_counts[i]` elements come from it. Parts lie one after another from the start of the buffer;
    /// what lies behind the last part is not touched.
    fn all_to_all_v<T: Element>(
        &self,
        send: &Self::Buffer<T>,
        send_counts: &[usize],
        recv: &mut Self::Buffer<T>,
        recv_counts: &[usize],
    ) -> Result<()>;

    /// Sends `data` to rank `peer`, and returns when it has been received.
    ///
    /// The nth send from one rank to another meets the nth receive; both must agree on length and type.
    fn send<T: Element>(&self, data: &Self::Buffer<T>, peer: usize) -> Result<()>;

    /// Receives `buffer` from rank `peer`.
    fn recv<T: Element>(&self, buffer: &mut Self::Buffer<T>, peer: usize) -> Result<()>;

    /// Returns when every rank has made the call.
    fn barrier(&self) -> Result<()>;

    /// Starts the calls that `calls` makes together and returns when all are done, as
    /// `ncclGroupStart` and `ncclGroupEnd` do: sends and receives of one group cannot block each other.
    ///
    /// ```
    /// use commtrace_collectives::{Communicator, Group, LocalComm};
    ///
    /// let received = LocalComm::run(3, |comm| {
    ///     let (right, left) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
    ///     let (mine, mut theirs) = ([comm.rank() as i32], [0]);
    ///     comm.group(|g| {
    ///         g.send(&mine, right)?;
    ///         g.recv(&mut theirs, left)
    ///     })?;
    ///     Ok::<_, commtrace_collectives::Error>(theirs[0])
    /// });
    /// assert_eq!(received, [Ok(2), Ok(0), Ok(1)]);
    /// ```
    ///
    /// # Errors
    ///
    /// The closure's own error, else the first failed call's. The calls made before the closure failed
    /// are still carried out, since other ranks wait for them.
    fn group<'g, R>(&'g self, calls: impl FnOnce(&mut Self::Group<'g>) -> Result<R>) -> Result<R>;

    /// Non-blocking [`all_reduce`](Self::all_reduce).
    fn all_reduce_async<T: Element>(
        &self,
        send: Self::Owned<T>,
        recv: Self::Owned<T>,
        op: &ReduceOp,
    ) -> Pending<(Self::Owned<T>, Self::Owned<T>)>;

    /// Non-blocking [`all_reduce_in_place`](Self::all_reduce_in_place).
    fn all_reduce_in_place_async<T: Element>(
        &self,
        buffer: Self::Owned<T>,
        op: &ReduceOp,
    ) -> Pending<Self::Owned<T>>;

    /// Non-blocking [`all_gather`](Self::all_gather).
    fn all_gather_async<T: Element>(
        &self,
        send: Self::Owned<T>,
        recv: Self::Owned<T>,
    ) -> Pending<(Self::Owned<T>, Self::Owned<T>)>;

    /// Non-blocking [`reduce_scatter`](Self::reduce_scatter).
    fn reduce_scatter_async<T: Element>(
        &self,
        send: Self::Owned<T>,
        recv: Self::Owned<T>,
        op: &ReduceOp,
    ) -> Pending<(Self::Owned<T>, Self::Owned<T>)>;

    /// Non-blocking [`broadcast`](Self::broadcast).
    #[expect(clippy::type_complexity, reason = "the same tuple as in the other calls, with an optional send")]
    fn broadcast_async<T: Element>(
        &self,
        send: Option<Self::Owned<T>>,
        recv: Self::Owned<T>,
        root: usize,
    ) -> Pending<(Option<Self::Owned<T>>, Self::Owned<T>)>;

    /// Non-blocking [`broadcast_in_place`](Self::broadcast_in_place).
    fn broadcast_in_place_async<T: Element>(
        &self,
        buffer: Self::Owned<T>,
        root: usize,
    ) -> Pending<Self::Owned<T>>;

    /// Non-blocking [`all_to_all`](Self::all_to_all).
    fn all_to_all_async<T: Element>(
        &self,
        send: Self::Owned<T>,
        recv: Self::Owned<T>,
    ) -> Pending<(Self::Owned<T>, Self::Owned<T>)>;

    /// Non-blocking [`all_to_all_v`](Self::all_to_all_v).
    fn all_to_all_v_async<T: Element>(
        &self,
        send: Self::Owned<T>,
        send_counts: &[usize],
        recv: Self::Owned<T>,
        recv_counts: &[usize],
    ) -> Pending<(Self::Owned<T>, Self::Owned<T>)>;

    /// Non-blocking [`send`](Self::send).
    fn send_async<T: Element>(&self, data: Self::Owned<T>, peer: usize) -> Pending<Self::Owned<T>>;

    /// Non-blocking [`recv`](Self::recv).
    fn recv_async<T: Element>(&self, buffer: Self::Owned<T>, peer: usize) -> Pending<Self::Owned<T>>;

    /// Whether all ranks are threads of this process, and so have one recorder.
    fn is_one_process(&self) -> bool {
        false
    }

    /// Sends bytes of any number to `peer`, which knows it must [receive](Self::receive_bytes) them: how
    /// [`Finish::finish`](crate::Finish::finish) gathers. Gives up at `deadline` where the backend can.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    fn send_bytes(&self, message: &[u8], peer: usize, deadline: Instant) -> Result<()> {
        let _ = deadline;
        let length = self.alloc_from(&[i64::try_from(message.len()).unwrap_or(i64::MAX)])?;
        self.send(&length, peer)?;
        if message.is_empty() { Ok(()) } else { self.send(&*self.alloc_from(message)?, peer) }
    }

    /// Receives what `peer` [sends](Self::send_bytes).
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    fn receive_bytes(&self, peer: usize, deadline: Instant) -> Result<Vec<u8>> {
        let _ = deadline;
        let mut length = self.alloc_zeros::<i64>(1)?;
        self.recv(&mut length, peer)?;
        let length =
            self.to_vec(&length)?.first().and_then(|&length| usize::try_from(length).ok()).unwrap_or(0);
        if length == 0 {
            return Ok(Vec::new());
        }
        let mut message = self.alloc_zeros::<u8>(length)?;
        self.recv(&mut message, peer)?;
        self.to_vec(&message)
    }
}

/// The calls that a [`Communicator::group`] is made of; each as the [`Communicator`] method of the same
/// name. Buffers are borrowed until the group is done.
pub trait Group<'g, C: Communicator + ?Sized> {
    /// See [`Communicator::all_reduce`].
    fn all_reduce<T: Element>(
        &mut self,
        send: &'g C::Buffer<T>,
        recv: &'g mut C::Buffer<T>,
        op: &ReduceOp,
    ) -> Result<()>;

    /// See [`Communicator::all_reduce_in_place`].
    fn all_reduce_in_place<T: Element>(&mut self, buffer: &'g mut C::Buffer<T>, op: &ReduceOp) -> Result<()>;

    /// See [`Communicator::reduce`].
    fn reduce<T: Element>(
        &mut self,
        send: &'g C::Buffer<T>,
        recv: Option<&'g mut C::Buffer<T>>,
        op: &ReduceOp,
        root: usize,
    ) -> Result<()>;

    /// See [`Communicator::reduce_in_place`].
    fn reduce_in_place<T: Element>(
        &mut self,
        buffer: &'g mut C::Buffer<T>,
        op: &ReduceOp,
        root: usize,
    ) -> Result<()>;

    /// See [`Communicator::all_gather`].
    fn all_gather<T: Element>(&mut self, send: &'g C::Buffer<T>, recv: &'g mut C::Buffer<T>) -> Result<()>;

    /// See [`Communicator::reduce_scatter`].
    fn reduce_scatter<T: Element>(
        &mut self,
        send: &'g C::Buffer<T>,
        recv: &'g mut C::Buffer<T>,
        op: &ReduceOp,
    ) -> Result<()>;

    /// See [`Communicator::broadcast`].
    fn broadcast<T: Element>(
        &mut self,
        send: Option<&'g C::Buffer<T>>,
        recv: &'g mut C::Buffer<T>,
        root: usize,
    ) -> Result<()>;

    /// See [`Communicator::broadcast_in_place`].
    fn broadcast_in_place<T: Element>(&mut self, buffer: &'g mut C::Buffer<T>, root: usize) -> Result<()>;

    /// See [`Communicator::all_to_all`].
    fn all_to_all<T: Element>(&mut self, send: &'g C::Buffer<T>, recv: &'g mut C::Buffer<T>) -> Result<()>;

    /// See [`Communicator::all_to_all_v`].
    fn all_to_all_v<T: Element>(
        &mut self,
        send: &'g C::Buffer<T>,
        send_counts: &[usize],
        recv: &'g mut C::Buffer<T>,
        recv_counts: &[usize],
    ) -> Result<()>;

    /// See [`Communicator::send`]. Within a group a rank may also send to itself.
    fn send<T: Element>(&mut self, data: &'g C::Buffer<T>, peer: usize) -> Result<()>;

    /// See [`Communicator::recv`]. Within a group a rank may also receive from itself.
    fn recv<T: Element>(&mut self, buffer: &'g mut C::Buffer<T>, peer: usize) -> Result<()>;
}
