//! Memory and copies of the stand-in driver: what is asynchronous, what is checked.

use crate::common::{Gate, of_kind, sleep};
use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, DriverError, result};
use double_support::{in_child, test_name};

#[test]
fn a_copy_from_pageable_memory_has_read_it_when_the_call_returns() {
    in_child(test_name!(), &[], || {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let mut there = stream.alloc_zeros::<u32>(3).unwrap();
        let mut source = vec![1_u32, 2, 3];
        let gate = Gate::on(&stream);
        stream.memcpy_htod(&source, &mut there).unwrap();
        source.fill(9);
        gate.open();
        assert_eq!(stream.clone_dtoh(&there).unwrap(), [1, 2, 3]);
    });
}

#[test]
fn only_page_locked_memory_is_copied_asynchronously() {
    in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let there = stream.clone_htod(&[7_u8; 16]).unwrap();
        // SAFETY: filled before it is read.
        let mut pinned = unsafe { context.alloc_pinned_with_flags::<u8>(16, 0) }.unwrap();
        pinned.as_mut_slice().unwrap().fill(0);
        let before = pinned.as_ptr().unwrap();
        let gate = Gate::on(&stream);
        stream.memcpy_dtoh(&there, &mut pinned).unwrap();
        // SAFETY: the bytes were filled above; they change only once the gate is open.
        assert_eq!(unsafe { before.read_volatile() }, 0, "the copy waits in the stream");
        gate.open();
        // Reading through cudarc waits for the copy's event.
        assert_eq!(pinned.as_slice().unwrap(), [7; 16]);
        sleep(&stream, 50);
        let mut pageable = [0_u8; 16];
        stream.memcpy_dtoh(&there, &mut pageable).unwrap();
        assert_eq!(pageable, [7; 16], "the call returned when it was complete");
    });
}

#[test]
fn memory_runs_out_and_comes_back() {
    in_child(test_name!(), &[("DOUBLE_CUDA_MEMORY_MB", "1")], || {
        let context = CudaContext::new(0).unwrap();
        // Dropping a slice of the legacy stream would free it in whatever context is current then.
        let stream = context.new_stream().unwrap();
        assert_eq!(context.mem_get_info().unwrap(), (1 << 20, 1 << 20));
        let most = stream.alloc_zeros::<u8>(1 << 20).unwrap();
        let refused = stream.alloc_zeros::<u8>(1).err();
        assert_eq!(refused, Some(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)));
        // The other device has its own.
        CudaContext::new(1).unwrap().default_stream().alloc_zeros::<u8>(1 << 20).unwrap();
        drop(most);
        stream.synchronize().unwrap();
        assert_eq!(context.mem_get_info().unwrap().0, 1 << 20);
    });
}

#[test]
fn addresses_are_checked_against_what_is_allocated() {
    in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        context.bind_to_thread().unwrap();
        let invalid = Err(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE));
        // SAFETY: the stand-in checks the device's side of each call; the host's buffers live.
        unsafe {
            let there = result::malloc_sync(8).unwrap();
            assert_eq!(result::memcpy_htod_sync(there, &[1_u8; 8]), Ok(()));
            assert_eq!(result::memcpy_htod_sync(there, &[1_u8; 9]), invalid);
            assert_eq!(result::memcpy_dtoh_sync(&mut [0_u8; 4], there + 5), invalid);
            assert_eq!(result::memset_d8_sync(there + 4, 3, 4), Ok(()));
            let mut back = [0_u8; 8];
            result::memcpy_dtoh_sync(&mut back, there).unwrap();
            assert_eq!(back, [1, 1, 1, 1, 3, 3, 3, 3]);
            assert_eq!(result::free_sync(there + 1), invalid);
            assert_eq!(result::free_sync(there), Ok(()));
            assert_eq!(result::free_sync(there), invalid);
        }
    });
}

#[test]
fn a_stream_that_was_destroyed_finishes_its_work_and_a_full_one_makes_wait() {
    let Some(run) = in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let done = context.new_event(None).unwrap();
        sleep(&stream, 30);
        for _ in 0..10_000 {
            // SAFETY: a handle that lives.
            unsafe { sys::cuEventRecord(done.cu_event(), stream.cu_stream()) };
        }
        sleep(&stream, 1);
        drop(stream);
        context.synchronize().unwrap();
        assert!(done.is_complete());
    }) else {
        return;
    };
    assert_eq!(of_kind(&run.pieces, "host").len(), 2);
}

#[test]
fn contexts_are_pushed_and_popped_and_die() {
    in_child(test_name!(), &[], || {
        let primary = CudaContext::new(0).unwrap();
        let current = || result::ctx::get_current().unwrap();
        assert_eq!(current(), Some(primary.cu_ctx()));
        let mut made = std::ptr::null_mut();
        // SAFETY: places for the results; the stand-in checks handles.
        unsafe {
            assert_eq!(sys::cuCtxCreate_v4(&mut made, std::ptr::null_mut(), 0, 1), CUresult::CUDA_SUCCESS);
            assert_eq!(current(), Some(made));
            let mut device = -1;
            assert_eq!(sys::cuCtxGetDevice(&mut device), CUresult::CUDA_SUCCESS);
            assert_eq!(device, 1);
            let mut popped = std::ptr::null_mut();
            assert_eq!(sys::cuCtxPopCurrent_v2(&mut popped), CUresult::CUDA_SUCCESS);
            assert_eq!((popped, current()), (made, Some(primary.cu_ctx())));
            assert_eq!(sys::cuCtxPushCurrent_v2(made), CUresult::CUDA_SUCCESS);
            assert_eq!(sys::cuCtxDestroy_v2(made), CUresult::CUDA_SUCCESS);
            assert_eq!(current(), Some(primary.cu_ctx()));
            assert_eq!(sys::cuCtxPushCurrent_v2(made), CUresult::CUDA_ERROR_INVALID_CONTEXT);
            // A device's own context is not to be destroyed so.
            assert_eq!(sys::cuCtxDestroy_v2(primary.cu_ctx()), CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        std::thread::spawn(|| assert_eq!(result::ctx::get_current().unwrap(), None)).join().unwrap();
    });
}
