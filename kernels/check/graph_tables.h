// Graphs on the device for the programs that check and time the kernels on graphs.
#pragma once

#include <memory>

#include "device.h"

// Values spread over places, each in memory of its own.
class SpreadTable {
 public:
  template <class T>
  SpreadTable(const std::vector<T> &values, const std::vector<uint64_t> &starts) : starts_(starts) {
    for (size_t k = 0; k + 1 < starts.size(); k++) {
      parts_.push_back(std::make_unique<Device>((starts[k + 1] - starts[k]) * sizeof(T)));
      parts_.back()->put(values.data() + starts[k], (starts[k + 1] - starts[k]) * sizeof(T));
      bases_.push_back(parts_.back()->address());
    }
    args_ = {bases_.data(), starts_.data(), bases_.size(), 0, sizeof(T), values.size()};
    if (bases_.size() == 1) args_.start_rows = nullptr;
  }
  SpreadTable(const SpreadTable &) = delete;

  const wmk_table &args() const { return args_; }

 private:
  std::vector<uint64_t> starts_, bases_;
  std::vector<std::unique_ptr<Device>> parts_;
  wmk_table args_;
};

// Starts of `places` parts of `rows` values: equal ones, or of any size.
inline std::vector<uint64_t> starts_of(uint64_t rows, int places, bool equal, Random &random) {
  std::vector<uint64_t> starts(places + 1, 0);
  const uint64_t part = (rows + places - 1) / places;
  for (int k = 1; k < places; k++) starts[k] = equal ? (k * part < rows ? k * part : rows) : random.below(rows + 1);
  starts[places] = rows;
  for (int k = 1; k <= places; k++) {
    for (int j = k; j > 0 && starts[j] < starts[j - 1]; j--) std::swap(starts[j], starts[j - 1]);
  }
  return starts;
}
