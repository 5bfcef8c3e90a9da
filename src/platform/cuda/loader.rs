//! Foreign libraries that may be absent (driver, NCCL, NVML, NVSHMEM): structs of function pointers filled by `dlopen`.
//! Loading never panics and never aborts; what is missing is said in words, once found out it stays so.

use std::fmt;

/// Why a foreign library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// No library of these names on this machine.
    Absent(String),
    /// A library is there, but it does not load or lacks a function.
    Broken(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Absent(words) | Unusable::Broken(words) => f.write_str(words),
        }
    }
}

/// Opens the first of `names` that is there.
/// # Errors
/// `Absent` if the search path holds none of them; `Broken` with the linker's words if one is there and does not load.
pub fn open_first(names: &[&str]) -> Result<libloading::Library, Unusable> {
    for name in names {
        // SAFETY: these are vendors' libraries, whose constructors may run at any time.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return Ok(library),
            Err(error) => {
                let words = error.to_string();
                if !not_found(name, &words) {
                    return Err(Unusable::Broken(format!("{name} does not load: {words}")));
                }
            }
        }
    }
    Err(Unusable::Absent(format!(
        "there is no {} here",
        names.join(" or ")
    )))
}

/// The linker puts the object's name first. A bare name (no directory) is one that was searched for in vain, whatever
/// the language of the rest; a library that was found speaks with its path, a missing dependency with its own name.
fn not_found(name: &str, words: &str) -> bool {
    if name.contains('/') {
        return !std::path::Path::new(name).exists();
    }
    words.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'))
        || words.contains(&format!("loading shared library {name}:"))
}

/// Declares a foreign library: a struct of function pointers and `Struct::get()`, which loads it once.
///
/// ```ignore
/// library! {
///     /// The CUDA driver.
///     pub struct Driver from ["libcuda.so.1"] {
///         required cuInit: fn(flags: c_uint) -> c_int;
///         optional cuGetErrorString: fn(code: c_int, text: *mut *const c_char) -> c_int;
///     }
/// }
/// ```
macro_rules! library {
    (@type required ($($arg:ty),*) $ret:ty) => { unsafe extern "C" fn($($arg),*) -> $ret };
    (@type optional ($($arg:ty),*) $ret:ty) => { Option<unsafe extern "C" fn($($arg),*) -> $ret> };
    (@load required $library:ident $names:ident $function:ident ($($arg:ty),*) $ret:ty) => {
        // SAFETY: the declaration in the macro's input is the vendor's.
        match unsafe { $library.get::<unsafe extern "C" fn($($arg),*) -> $ret>(concat!(stringify!($function), "\0").as_bytes()) } {
            Ok(symbol) => *symbol,
            Err(_) => return Err($crate::platform::cuda::loader::Unusable::Broken(format!(
                "{} has no function {}: it is too old or not the real one", $names[0], stringify!($function)
            ))),
        }
    };
    (@load optional $library:ident $names:ident $function:ident ($($arg:ty),*) $ret:ty) => {
        // SAFETY: the declaration in the macro's input is the vendor's.
        unsafe { $library.get::<unsafe extern "C" fn($($arg),*) -> $ret>(concat!(stringify!($function), "\0").as_bytes()) }
            .ok().map(|symbol| *symbol)
    };
    (@find required $find:ident $function:ident ($($arg:ty),*) $ret:ty) => {
        // SAFETY: the test's function has the declared type.
        unsafe { std::mem::transmute::<*const (), unsafe extern "C" fn($($arg),*) -> $ret>(
            $find(stringify!($function)).expect(stringify!($function))
        ) }
    };
    (@find optional $find:ident $function:ident ($($arg:ty),*) $ret:ty) => {
        // SAFETY: the test's function has the declared type.
        $find(stringify!($function)).map(|found| unsafe {
            std::mem::transmute::<*const (), unsafe extern "C" fn($($arg),*) -> $ret>(found)
        })
    };
    (
        $(#[$doc:meta])* $vis:vis struct $name:ident from [$($soname:literal),+ $(,)?] {
            $($need:ident $function:ident: fn($($arg_name:ident: $arg:ty),* $(,)?) -> $ret:ty;)+
        }
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        $vis struct $name {
            $(pub $function: $crate::platform::cuda::loader::library!(@type $need ($($arg),*) $ret),)+
            _library: Option<libloading::Library>,
        }

        impl $name {
            /// The library, loaded at the first call and kept.
            pub fn get() -> std::result::Result<&'static $name, &'static $crate::platform::cuda::loader::Unusable> {
                static LOADED: once_cell::race::OnceBox<std::result::Result<$name, $crate::platform::cuda::loader::Unusable>> =
                    once_cell::race::OnceBox::new();
                LOADED.get_or_init(|| Box::new(Self::load())).as_ref()
            }

            fn load() -> std::result::Result<$name, $crate::platform::cuda::loader::Unusable> {
                let names = &[$($soname),+];
                let library = $crate::platform::cuda::loader::open_first(names)?;
                Ok($name {
                    $($function: $crate::platform::cuda::loader::library!(@load $need library names $function ($($arg),*) $ret),)+
                    _library: Some(library),
                })
            }

            /// A table of functions of a test's own, by name.
            #[cfg(test)]
            #[allow(dead_code)]
            pub fn from_functions(find: &dyn Fn(&str) -> Option<*const ()>) -> $name {
                $name {
                    $($function: $crate::platform::cuda::loader::library!(@find $need find $function ($($arg),*) $ret),)+
                    _library: None,
                }
            }
        }
    };
}

pub(crate) use library;

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_int;

    library! {
        #[allow(dead_code)]
        struct Maths from ["libm.so.6"] {
            required abs_that_nobody_has: fn(x: c_int) -> c_int;
        }
    }

    library! {
        struct C from ["libnobody.so.1", "libc.so.6"] {
            required abs: fn(x: c_int) -> c_int;
            optional abs_that_nobody_has: fn(x: c_int) -> c_int;
        }
    }

    #[test]
    fn later_names_are_tried_and_optional_functions_may_lack() {
        let c = C::get().expect("libc is there");
        assert!(c.abs_that_nobody_has.is_none());
        // SAFETY: abs of libc.
        assert_eq!(unsafe { (c.abs)(-3) }, 3);
    }

    #[test]
    fn a_missing_function_is_named() {
        let Err(Unusable::Broken(words)) = Maths::get() else {
            panic!("a library without a required function must be refused")
        };
        assert!(
            words.contains("abs_that_nobody_has") && words.contains("libm.so.6"),
            "{words}"
        );
    }

    #[test]
    fn absent_is_not_broken() {
        let folder = tempfile::tempdir().expect("a folder");
        let junk = folder.path().join("libjunk.so");
        std::fs::write(&junk, b"no library").expect("a file");
        assert!(matches!(
            open_first(&["libnobody.so.1"]),
            Err(Unusable::Absent(_))
        ));
        assert!(matches!(
            open_first(&[junk.to_str().expect("utf-8")]),
            Err(Unusable::Broken(_))
        ));
    }
}
