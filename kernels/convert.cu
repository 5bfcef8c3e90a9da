// Rows whose elements change their type on the way, for gather and scatter.

#include "dispatch.cuh"

namespace wmk {

namespace {

struct Conversions {
  template <int kMost>
  static Choice<kMost> pick(const Ask &ask) {
    switch (ask.from) {
      case dtype_float:
        return to_float<float, kMost>(ask);
      case dtype_half:
        return to_float<half_bits, kMost>(ask);
      case dtype_bf16:
        return to_float<bf16_bits, kMost>(ask);
      case dtype_double:
        return to_float<double, kMost>(ask);
      case dtype_int:
        return to_integer<int32_t, kMost>(ask);
      case dtype_int64:
        return to_integer<int64_t, kMost>(ask);
      case dtype_int16:
        return to_integer<int16_t, kMost>(ask);
      case dtype_int8:
        return to_integer<int8_t, kMost>(ask);
    }
    return {};
  }

  template <class F>
  static void each(F f) {
    for (uint32_t path : {path_convert, path_convert_shift}) {
      for (uint32_t from = dtype_float; from <= dtype_int8; from++) {
        for (uint32_t to = dtype_float; to <= dtype_int8; to++) {
          if (from != to && is_float(from) == is_float(to)) f(Ask{from, to, path, 0});
        }
      }
    }
  }

 private:
  template <class From, class To, int kMost>
  static Choice<kMost> one(const Ask &ask) {
    if constexpr (!std::is_same_v<From, To>) {
      constexpr int kCount = piece_elements(sizeof(From), sizeof(To));
      // Over many ranks the general kernel does for both paths.
      if constexpr (kMost < many_places) {
        if (ask.path == path_convert) return aligned<From, To, kCount, Way::kEither, kMost>();
      }
      if (ask.path == path_convert || ask.path == path_convert_shift) {
        return shifted<From, To, kCount, Way::kEither, kMost>();
      }
    }
    return {};
  }

  template <class From, int kMost>
  static Choice<kMost> to_float(const Ask &ask) {
    switch (ask.to) {
      case dtype_float:
        return one<From, float, kMost>(ask);
      case dtype_half:
        return one<From, half_bits, kMost>(ask);
      case dtype_bf16:
        return one<From, bf16_bits, kMost>(ask);
      case dtype_double:
        return one<From, double, kMost>(ask);
    }
    return {};
  }

  template <class From, int kMost>
  static Choice<kMost> to_integer(const Ask &ask) {
    switch (ask.to) {
      case dtype_int:
        return one<From, int32_t, kMost>(ask);
      case dtype_int64:
        return one<From, int64_t, kMost>(ask);
      case dtype_int16:
        return one<From, int16_t, kMost>(ask);
      case dtype_int8:
        return one<From, int8_t, kMost>(ask);
    }
    return {};
  }
};

}  // namespace

cudaError_t convert_rows(const wmk_rows_args *args, bool scatters, cudaStream_t stream) {
  if (args == nullptr) {
    const cudaError_t code = load_kernels<Conversions, few_places>();
    return code != cudaSuccess ? code : load_kernels<Conversions, many_places>();
  }
  if (args->table.places <= few_places) return launch<Conversions, few_places>(*args, scatters, stream);
  return launch<Conversions, many_places>(*args, scatters, stream);
}

}  // namespace wmk
