//! The folder from which the stand-ins are loaded.

use cudarc::driver::{CudaContext, DriverError, sys};
use double_support::{Doubles, finish, in_child, test_name};
use std::path::Path;
use std::time::Duration;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn the_build_leaves_no_library_of_a_drivers_name() {
    let doubles = Doubles::new().unwrap();
    let dependencies = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    for folder in [dependencies.as_path(), dependencies.parent().unwrap()] {
        let names = names(folder);
        assert!(names.iter().any(|name| name.starts_with("libdouble_") || name.starts_with("doubles-")));
        let taken = ["libcuda.so", "libnccl.so"];
        let wrong: Vec<_> =
            names.iter().filter(|name| taken.iter().any(|taken| name.starts_with(taken))).collect();
        assert!(wrong.is_empty(), "{wrong:?} in {}", folder.display());
    }
    assert_eq!(names(doubles.folder()).len(), 4);
}

#[test]
fn the_folder_goes_with_its_owner() {
    let doubles = Doubles::new().unwrap();
    let folder = doubles.folder().to_owned();
    assert!(folder.join("libcuda.so.1").exists() && folder.join("libnccl.so").exists());
    drop(doubles);
    assert!(!folder.exists());
}

#[test]
fn a_machine_without_nccl_has_a_driver_alone() {
    if std::env::var_os("FOLDER_WITHOUT_NCCL").is_some() {
        // SAFETY: both only open the library and close it.
        unsafe {
            assert!(sys::is_culib_present());
            assert!(!cudarc::nccl::sys::is_culib_present());
        }
        CudaContext::new(0).unwrap().default_stream().synchronize().unwrap();
        return;
    }
    let doubles = Doubles::without_nccl().unwrap();
    let mut command = doubles.command(std::env::current_exe().unwrap());
    command.args(["--exact", test_name!(), "--nocapture"]).env("FOLDER_WITHOUT_NCCL", "1");
    let finished = finish(&mut command, Duration::from_secs(60)).unwrap();
    assert!(finished.status.is_some_and(|status| status.success()), "{finished:?}");
    assert!(finished.stdout.contains("1 passed"), "{finished:?}");
}

#[test]
fn a_driver_may_find_no_device() {
    in_child(test_name!(), &[("DOUBLE_CUDA_DEVICES", "0")], || {
        let none = Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE));
        assert_eq!(CudaContext::device_count(), none);
        assert_eq!(CudaContext::new(0).map(|_| ()), none.map(|_| ()));
    });
}
