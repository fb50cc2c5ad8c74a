//! Element types.

/// An element type: its name in reports and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dtype {
    /// The name in reports, for example `bf16`.
    pub name: &'static str,
    /// Bytes per element.
    pub size: u64,
}

impl Dtype {
    /// The type that PyTorch (`Float`, `c10::BFloat16`, `unsigned char`), NCCL (`f32`, `ncclBfloat16`,
    /// `int8_t`) or NumPy (`float32`) calls `name`; `None` for other names.
    ///
    /// ```
    /// use commtrace_report::classify::Dtype;
    /// assert_eq!(Dtype::named("BFloat16").map(|dtype| (dtype.name, dtype.size)), Some(("bf16", 2)));
    /// assert_eq!(Dtype::named("Scalar"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim().trim_start_matches("c10::").trim_start_matches("torch.");
        let name: String = name
            .trim_start_matches("nccl")
            .chars()
            .filter(|c| !matches!(c, '_' | ' '))
            .map(|c| c.to_ascii_lowercase())
            .collect();
        let (name, size) = match name.as_str() {
            "float" | "float32" | "f32" | "kfloat" => ("f32", 4),
            "double" | "float64" | "f64" => ("f64", 8),
            "half" | "float16" | "f16" | "fp16" => ("f16", 2),
            "bfloat16" | "bf16" | "hipbfloat16" | "nvbfloat16" => ("bf16", 2),
            "float8e4m3fn" | "float8e4m3fnuz" | "float8e4m3" | "f8e4m3" | "fp8e4m3" => ("f8e4m3", 1),
            "float8e5m2" | "float8e5m2fnuz" | "f8e5m2" | "fp8e5m2" => ("f8e5m2", 1),
            "byte" | "unsignedchar" | "uint8t" | "uint8" | "u8" => ("u8", 1),
            "char" | "signedchar" | "int8t" | "int8" | "i8" => ("i8", 1),
            "bool" => ("bool", 1),
            "short" | "int16" | "int16t" | "i16" => ("i16", 2),
            "int" | "int32" | "int32t" | "i32" => ("i32", 4),
            "unsignedint" | "uint32" | "uint32t" | "u32" => ("u32", 4),
            "long" | "longint" | "longlong" | "int64" | "int64t" | "i64" => ("i64", 8),
            "unsignedlong" | "uint64" | "uint64t" | "u64" => ("u64", 8),
            "complexhalf" | "c10complexhalf" => ("c32", 4),
            "complexfloat" | "complex64" | "complex<float>" => ("c64", 8),
            "complexdouble" | "complex128" | "complex<double>" => ("c128", 16),
            _ => return None,
        };
        Some(Self { name, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_per_type() {
        for (name, expected, size) in [
            ("Float", "f32", 4),
            ("float", "f32", 4),
            ("c10::Half", "f16", 2),
            ("c10::BFloat16", "bf16", 2),
            ("torch.float64", "f64", 8),
            ("Float8_e4m3fn", "f8e4m3", 1),
            ("unsigned char", "u8", 1),
            ("signed char", "i8", 1),
            ("int8_t", "i8", 1),
            ("Long", "i64", 8),
            ("long int", "i64", 8),
            ("ncclBfloat16", "bf16", 2),
            ("c10::complex<float>", "c64", 8),
        ] {
            assert_eq!(Dtype::named(name), Some(Dtype { name: expected, size }), "{name}");
        }
        for name in ["", "TensorList", "Scalar", "GenericList"] {
            assert_eq!(Dtype::named(name), None, "{name}");
        }
    }
}
