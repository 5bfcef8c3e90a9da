// Rows whose elements change their type on the way, for gather and scatter.

#include "dispatch.cuh"

namespace wmk {

namespace {

struct Conversions {
  template <int kMost>
  static Choice<kMost> pick(const wmk_rows_args& args) {
    switch (args.from) {
      case WMK_FLOAT:
        return to_float<float, kMost>(args);
      case WMK_HALF:
        return to_float<__half, kMost>(args);
      case WMK_BF16:
        return to_float<__nv_bfloat16, kMost>(args);
      case WMK_DOUBLE:
        return to_float<double, kMost>(args);
      case WMK_INT:
        return to_integer<int32_t, kMost>(args);
      case WMK_INT64:
        return to_integer<int64_t, kMost>(args);
      case WMK_INT16:
        return to_integer<int16_t, kMost>(args);
      case WMK_INT8:
        return to_integer<int8_t, kMost>(args);
    }
    return {};
  }

  template <class F>
  static void each(F f) {
    wmk_rows_args args{};
    for (args.path = WMK_PATH_CONVERT; args.path <= WMK_PATH_CONVERT_SHIFT; args.path++) {
      for (args.from = WMK_FLOAT; args.from <= WMK_INT8; args.from++) {
        for (args.to = WMK_FLOAT; args.to <= WMK_INT8; args.to++) {
          if (args.from != args.to && (args.from <= WMK_BF16) == (args.to <= WMK_BF16)) f(args);
        }
      }
    }
  }

 private:
  template <class From, class To, int kMost>
  static Choice<kMost> one(const wmk_rows_args& args) {
    if constexpr (!std::is_same_v<From, To>) {
      constexpr int kCount = wmk_piece_elements(int{sizeof(From)}, int{sizeof(To)});
      // Over many ranks the general kernel does for both paths.
      if constexpr (kMost < kManyPlaces) {
        if (args.path == WMK_PATH_CONVERT) return aligned<From, To, kCount, Way::kEither, kMost>();
      }
      if (args.path == WMK_PATH_CONVERT || args.path == WMK_PATH_CONVERT_SHIFT) {
        return shifted<From, To, kCount, Way::kEither, kMost>();
      }
    }
    return {};
  }

  template <class From, int kMost>
  static Choice<kMost> to_float(const wmk_rows_args& args) {
    switch (args.to) {
      case WMK_FLOAT:
        return one<From, float, kMost>(args);
      case WMK_HALF:
        return one<From, __half, kMost>(args);
      case WMK_BF16:
        return one<From, __nv_bfloat16, kMost>(args);
      case WMK_DOUBLE:
        return one<From, double, kMost>(args);
    }
    return {};
  }

  template <class From, int kMost>
  static Choice<kMost> to_integer(const wmk_rows_args& args) {
    switch (args.to) {
      case WMK_INT:
        return one<From, int32_t, kMost>(args);
      case WMK_INT64:
        return one<From, int64_t, kMost>(args);
      case WMK_INT16:
        return one<From, int16_t, kMost>(args);
      case WMK_INT8:
        return one<From, int8_t, kMost>(args);
    }
    return {};
  }
};

}  // namespace

cudaError_t convert_rows(const wmk_rows_args* args, bool scatters, cudaStream_t stream) {
  if (args == nullptr) {
    const cudaError_t code = load_kernels<Conversions, kFewPlaces>();
    return code != cudaSuccess ? code : load_kernels<Conversions, kManyPlaces>();
  }
  if (args->table.places <= kFewPlaces) return launch<Conversions, kFewPlaces>(*args, scatters, stream);
  return launch<Conversions, kManyPlaces>(*args, scatters, stream);
}

}  // namespace wmk
