//! Faults that the environment asks for.

use crate::common::{of_kind, sleep};
use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, DriverError, result};
use double_support::{Doubles, finish, in_child, test_name};
use std::time::Duration;

#[test]
fn a_stuck_event_never_completes_and_its_stream_goes_on() {
    in_child(test_name!(), &[("DOUBLE_CUDA_STUCK_EVENTS", "2,4..")], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        // Events without timing do not count.
        let untimed = stream.record_event(None).unwrap();
        let timed: Vec<_> = (0..5).map(|_| stream.record_event(Some(CU_EVENT_DEFAULT)).unwrap()).collect();
        stream.synchronize().unwrap();
        assert!(untimed.is_complete());
        let complete: Vec<bool> = timed.iter().map(|event| event.try_is_complete().unwrap()).collect();
        assert_eq!(complete, [true, false, true, false, false]);
    });
}

#[test]
fn a_sticky_error_after_a_number_of_launches_is_got_by_every_call() {
    let variables = [("DOUBLE_CUDA_STICKY", "illegal_address:launches:3")];
    let Some(run) = in_child(test_name!(), &variables, || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let event = stream.record_event(Some(CU_EVENT_DEFAULT)).unwrap();
        for _ in 0..3 {
            sleep(&stream, 20);
        }
        let illegal = Err(DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert_eq!(stream.synchronize(), illegal);
        assert_eq!(stream.synchronize(), illegal, "it stays");
        assert_eq!(event.record(&stream), illegal);
        assert_eq!(event.try_is_complete(), illegal.map(|()| false));
        assert!(stream.alloc_zeros::<u8>(1).is_err());
        // Another device is not concerned.
        CudaContext::new(1).unwrap().default_stream().synchronize().unwrap();
        // cudarc remembers what dropping meets; asking for it clears it.
        drop(event);
        assert!(context.check_err().is_err());
    }) else {
        return;
    };
    assert_eq!(of_kind(&run.pieces, "host").len(), 2, "the third did not run");
}

#[test]
fn a_sticky_error_after_a_number_of_calls_is_got_by_every_call() {
    for (name, code) in [
        ("device_lost", CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE),
        ("context_destroyed", CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
        ("719", CUresult::CUDA_ERROR_LAUNCH_FAILED),
    ] {
        in_child(test_name!(), &[("DOUBLE_CUDA_STICKY", &format!("{name}:calls:11"))], || {
            // The child runs the body for its own variables only.
            let asked = std::env::var("DOUBLE_CUDA_STICKY").unwrap();
            if !asked.starts_with(name) {
                return;
            }
            let context = CudaContext::new(0).unwrap();
            let stream = context.default_stream();
            let outcomes: Vec<_> = (0..20).map(|_| stream.synchronize()).collect();
            let good = outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
            assert_eq!(good, 10);
            assert!(outcomes[good..].iter().all(|outcome| *outcome == Err(DriverError(code))));
        });
    }
}

#[test]
fn a_context_that_was_reset_is_gone_for_all_its_handles() {
    in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let event = stream.record_event(Some(CU_EVENT_DEFAULT)).unwrap();
        // SAFETY: the stand-in finds stale handles out.
        unsafe { sys::cuDevicePrimaryCtxReset_v2(context.cu_device()) }.result().unwrap();
        let gone = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
        // SAFETY: as above.
        unsafe {
            assert_eq!(sys::cuEventQuery(event.cu_event()), gone);
            assert_eq!(sys::cuEventRecord(event.cu_event(), stream.cu_stream()), gone);
            assert_eq!(sys::cuStreamSynchronize(std::ptr::null_mut()), gone);
            let mut made = std::ptr::null_mut();
            assert_eq!(sys::cuEventCreate(&mut made, 0), gone);
        }
        let again = CudaContext::new(0).unwrap();
        again.bind_to_thread().unwrap();
        again.default_stream().synchronize().unwrap();
        // Old wrappers would release what they do not hold.
        std::mem::forget((event, stream, context));
    });
}

#[test]
fn a_slow_device_takes_longer_for_each_launch() {
    let Some(run) = in_child(test_name!(), &[("DOUBLE_CUDA_SLOW", "1:30000000")], || {
        for stream in crate::common::streams(2) {
            sleep(&stream, 1);
            stream.synchronize().unwrap();
        }
    }) else {
        return;
    };
    let slow = of_kind(&run.pieces, "host").into_iter().find(|piece| piece.device == 1).unwrap();
    assert!(slow.duration_ns() >= 31_000_000, "{slow:?}");
}

#[test]
fn symbols_can_be_missing() {
    in_child(test_name!(), &[("DOUBLE_CUDA_MISSING", "cuEventElapsedTime_v2, cuStreamGetCtx_v2")], || {
        // SAFETY: opening the stand-in runs nothing but its initializers.
        let driver = unsafe { libloading::Library::new("libcuda.so.1") }.unwrap();
        // SAFETY: the symbols are only looked up.
        let has = |name: &str| unsafe { driver.get::<unsafe extern "C" fn()>(name) }.is_ok();
        assert!(!has("cuEventElapsedTime_v2") && !has("cuStreamGetCtx_v2"));
        assert!(has("cuEventElapsedTime") && has("cuStreamGetCtx"));
        // cudarc panics on what is missing, and works without asking for it.
        let context = CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        let event = stream.record_event(Some(CU_EVENT_DEFAULT)).unwrap();
        event.synchronize().unwrap();
        let asked = std::panic::catch_unwind(|| event.elapsed_ms(&event));
        assert!(asked.is_err());
    });
}

#[test]
fn an_access_outside_of_what_is_allocated_is_an_illegal_address() {
    in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        let y = stream.alloc_zeros::<f32>(10).unwrap();
        let image = c".visible .entry fill_f32";
        // SAFETY: an image that ends with NUL, and a function and parameters as the kernel has them.
        unsafe {
            let module = result::module::load_data(image.as_ptr().cast()).unwrap();
            assert!(result::module::get_function(module, c"axpy_f32".to_owned()).is_err());
            let fill = result::module::get_function(module, c"fill_f32".to_owned()).unwrap();
            let launch = |count: u64| {
                let (address, value) = (result_address(&y), 2.5_f32);
                let mut parameters = [
                    (&raw const address).cast_mut().cast(),
                    (&raw const value).cast_mut().cast(),
                    (&raw const count).cast_mut().cast(),
                ];
                result::launch_kernel(fill, (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut parameters)
            };
            launch(10).unwrap();
            assert_eq!(stream.clone_dtoh(&y).unwrap(), [2.5; 10]);
            launch(11).unwrap();
            assert_eq!(result::module::unload(module), Ok(()));
            let gone = Err(DriverError(CUresult::CUDA_ERROR_INVALID_HANDLE));
            assert_eq!(launch(10), gone, "the function went with its module");
        }
        assert_eq!(stream.synchronize(), Err(DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)));
    });
}

fn result_address(slice: &cudarc::driver::CudaSlice<f32>) -> u64 {
    use cudarc::driver::DevicePtr;
    slice.device_ptr(slice.stream()).0
}

#[test]
fn a_setting_that_is_not_understood_is_said_and_fails() {
    if std::env::var_os("FAULTS_BAD_SETTING").is_some() {
        assert!(CudaContext::new(0).is_err());
        return;
    }
    let doubles = Doubles::new().unwrap();
    let mut command = doubles.command(std::env::current_exe().unwrap());
    command.args(["--exact", test_name!(), "--nocapture"]);
    command.env("FAULTS_BAD_SETTING", "1").env("DOUBLE_CUDA_STICKY", "sometimes");
    let finished = finish(&mut command, Duration::from_secs(60)).unwrap();
    assert!(finished.status.is_some_and(|status| status.success()), "{finished:?}");
    assert!(finished.stderr.contains("DOUBLE_CUDA_STICKY=sometimes is not understood"), "{finished:?}");
}

#[test]
fn millions_of_records_take_no_more_memory() {
    fn resident_kb() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
    in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let streams: Vec<_> = (0..4).map(|_| context.new_stream().unwrap()).collect();
        let events: Vec<_> = (0..64).map(|_| context.new_event(Some(CU_EVENT_DEFAULT)).unwrap()).collect();
        let record = |count: usize| {
            for at in 0..count {
                let (event, stream) = (&events[at % events.len()], &streams[at % streams.len()]);
                // SAFETY: handles that live.
                let code = unsafe { sys::cuEventRecord(event.cu_event(), stream.cu_stream()) };
                assert_eq!(code, CUresult::CUDA_SUCCESS);
            }
            context.synchronize().unwrap();
        };
        record(100_000);
        let before = resident_kb();
        record(1_000_000);
        let grown = resident_kb().saturating_sub(before);
        assert!(grown < 16_384, "grew by {grown} KiB");
    });
}
