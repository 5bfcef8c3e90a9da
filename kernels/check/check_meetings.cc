// Meetings: ranks on streams of one device, which run at the same time there; many meetings, replayed graphs, the
// arriving half in a gather's last block, the end of all waiting.

#include <chrono>
#include <memory>

#include "check.h"

namespace {

size_t board_bytes(uint32_t ranks) { return sizeof(wmk_board) + 2 * ranks * sizeof(uint64_t); }

// Every rank's board, each with its peers' addresses, in memory of its own.
struct Boards {
  std::vector<std::unique_ptr<Device>> memory;
  explicit Boards(uint32_t ranks) {
    for (uint32_t r = 0; r < ranks; r++) memory.push_back(std::make_unique<Device>(board_bytes(ranks)));
    for (uint32_t r = 0; r < ranks; r++) {
      std::vector<uint64_t> words(board_bytes(ranks) / 8, 0);
      wmk_board head{};
      head.ranks = ranks;
      head.rank = r;
      memcpy(words.data(), &head, sizeof head);
      for (uint32_t peer = 0; peer < ranks; peer++) {
        words[sizeof head / 8 + peer] = memory[peer]->address() + sizeof head + (ranks + r) * 8;
      }
      memory[r]->put(words);
    }
  }
  uint64_t epoch(uint32_t rank) { return memory[rank]->get<uint64_t>(1)[0]; }
};

struct Streams {
  std::vector<cudaStream_t> at;
  explicit Streams(int count) : at(count) {
    for (auto &s : at) CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  }
  ~Streams() {
    for (auto s : at) cudaStreamDestroy(s);
  }
};

// In every turn each rank writes its row of the turn, meets, and reads the rows of all others; a second meeting keeps
// the rows until all have read.
// The second meeting arrives by itself, or with the last block of the gather; or it does, and small moves begin early.
enum class Way { kByMeeting, kByGather, kEarly };

bool turns(uint32_t ranks, int turns, Way way, bool graph) {
  const int cols = 64;
  const uint64_t row_bytes = cols * 4;
  Boards boards(ranks);
  Streams streams(ranks);
  Shared<uint32_t> abort(1);
  abort[0] = 0;
  // Row r of the table is written by rank r; what rank r read in turn t is seen[r] + t * ranks rows.
  Device table(ranks * row_bytes), values(ranks * turns * row_bytes), all_values(values.bytes()), ids(ranks * 8),
      own(ranks * 8);
  table.poison();
  std::vector<std::unique_ptr<Device>> seen;
  std::vector<uint32_t> fresh(ranks * turns * cols);
  for (uint32_t t = 0; t < static_cast<uint32_t>(turns); t++) {
    for (uint32_t r = 0; r < ranks; r++) {
      for (int c = 0; c < cols; c++) fresh[(t * ranks + r) * cols + c] = t * 100000 + r * 1000 + c;
    }
  }
  values.put(fresh);
  all_values.put(fresh);
  std::vector<int64_t> all(ranks);
  for (uint32_t r = 0; r < ranks; r++) all[r] = r;
  ids.put(all);
  const uint64_t base = table.address();
  for (uint32_t r = 0; r < ranks; r++) {
    seen.push_back(std::make_unique<Device>(turns * ranks * row_bytes));
    seen.back()->poison();
  }
  std::vector<wmk_meetings> had(ranks, wmk_meetings{});
  auto enqueue = [&](uint32_t r, int t, cudaStream_t stream) {
    // Meetings that arrive elsewhere have no turns.
    wmk_meetings *const turns_had = way == Way::kByGather ? nullptr : &had[r];
    wmk_rows_args args{};
    args.table = {&base, nullptr, 1, 0, row_bytes, ranks};
    args.id_bytes = 8;
    args.table_dtype = args.plain_dtype = dtype_int;
    args.cols = cols;
    args.blocks = 2;
    args.plain_stride_bytes = row_bytes;
    args.ids = ids.as<int64_t>() + r;
    args.count = 1;
    args.plain = values.address() + (t * ranks + r) * row_bytes;
    // In some turns a call has too many blocks for that; the one that is captured asks for it.
    args.early_blocks = way == Way::kEarly ? (t + 1) % 2 : 0;
    CUDA(wmk_scatter(&args, stream));
    const uint32_t lets_next = way == Way::kEarly ? WMK_MEET_LETS_NEXT : 0;
    wmk_meet_args meet{boards.memory[r]->as<void>(), abort.get(), WMK_MEET_ARRIVE | WMK_MEET_WAIT | lets_next, 0,
                       turns_had};
    CUDA(wmk_meet(&meet, stream));
    args.early_blocks = way == Way::kEarly ? (t + 2) % 3 : 0;
    args.ids = ids.as<int64_t>();
    args.count = ranks;
    args.plain = seen[r]->address() + t * ranks * row_bytes;
    args.board = way == Way::kByGather ? boards.memory[r]->as<void>() : nullptr;
    CUDA(wmk_gather(&args, stream));
    meet.parts = WMK_MEET_WAIT | (way == Way::kByGather ? 0u : WMK_MEET_ARRIVE | lets_next);
    CUDA(wmk_meet(&meet, stream));
  };
  if (!graph) {
    for (int t = 0; t < turns; t++) {
      for (uint32_t r = 0; r < ranks; r++) enqueue(r, t, streams.at[r]);
    }
    CUDA(cudaDeviceSynchronize());
  } else {
    // Only turn 0 is captured; it is replayed, its values written anew in between.
    std::vector<cudaGraphExec_t> replays(ranks);
    for (uint32_t r = 0; r < ranks; r++) {
      cudaGraph_t captured;
      CUDA(cudaStreamBeginCapture(streams.at[r], cudaStreamCaptureModeThreadLocal));
      enqueue(r, 0, streams.at[r]);
      CUDA(cudaStreamEndCapture(streams.at[r], &captured));
      CUDA(cudaGraphInstantiate(&replays[r], captured, 0));
      CUDA(cudaGraphDestroy(captured));
    }
    for (int t = 0; t < turns; t++) {
      for (uint32_t r = 0; r < ranks; r++) {
        // Nothing here may wait for a stream, whose rank may be waiting for another that has no work yet.
        CUDA(cudaMemcpyAsync(values.as<char>() + r * row_bytes, all_values.as<char>() + (t * ranks + r) * row_bytes,
                             row_bytes, cudaMemcpyDeviceToDevice, streams.at[r]));
        CUDA(cudaGraphLaunch(replays[r], streams.at[r]));
        if (t == 0) continue;
        CUDA(cudaMemcpyAsync(seen[r]->as<char>() + t * ranks * row_bytes, seen[r]->as<char>(), ranks * row_bytes,
                             cudaMemcpyDeviceToDevice, streams.at[r]));
      }
    }
    CUDA(cudaDeviceSynchronize());
    for (auto replay : replays) CUDA(cudaGraphExecDestroy(replay));
  }
  int wrong = 0;
  auto report = [&](const char *what, uint32_t rank, size_t at, uint64_t got, uint64_t want) {
    if (wrong++ < 4) {
      fprintf(stderr, "WRONG meetings of %u ranks, way %d, graph %d: rank %u %s %zu is %llu, not %llu\n", ranks,
              static_cast<int>(way), graph, rank, what, at, static_cast<unsigned long long>(got),
              static_cast<unsigned long long>(want));
    }
  };
  for (uint32_t r = 0; r < ranks; r++) {
    auto got = seen[r]->get<uint32_t>(turns * ranks * cols);
    // The place of turn 0 holds the last replay.
    for (size_t i = 0; i < got.size(); i++) {
      const size_t from = graph && i < ranks * cols ? (turns - 1) * ranks * cols + i : i;
      if (got[i] != fresh[from]) report("value", r, i, got[i], fresh[from]);
    }
    const uint64_t epoch = boards.epoch(r), meetings = static_cast<uint64_t>(2 * turns);
    if (epoch != meetings) report("epoch", r, 0, epoch, meetings);
    const uint64_t turns_wanted = graph || way == Way::kByGather ? 0 : meetings;
    if (had[r].turns != turns_wanted) report("turns", r, 0, had[r].turns, turns_wanted);
  }
  return wrong == 0;
}

bool abort_ends_the_wait(double within_s) {
  Boards boards(3);
  Streams streams(1);
  Shared<uint32_t> abort(1);
  abort[0] = 0;
  wmk_meet_args meet{boards.memory[1]->as<void>(), abort.get(), WMK_MEET_ARRIVE | WMK_MEET_WAIT, 0, nullptr};
  CUDA(wmk_meet(&meet, streams.at[0]));
  const auto begin = std::chrono::steady_clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  bool waited = true;
  while (seconds() < 0.1) waited = waited && cudaStreamQuery(streams.at[0]) == cudaErrorNotReady;
  reinterpret_cast<volatile uint32_t *>(abort.get())[0] = 1;
  while (cudaStreamQuery(streams.at[0]) == cudaErrorNotReady && seconds() < 5) {
  }
  const bool ended = seconds() < within_s;
  if (!waited || !ended) fprintf(stderr, "WRONG: a wait for an absent rank: waited %d, ended %d\n", waited, ended);
  CUDA(cudaStreamSynchronize(streams.at[0]));
  return waited && ended;
}

// A rank's meetings on two streams that nothing else orders: the second arrives after the first, which work before it keeps.
bool turns_order_streams(double keeps_s) {
  Boards boards(2), gates(2);
  Streams streams(3);
  Shared<uint32_t> abort(1), gate(1);
  abort[0] = gate[0] = 0;
  constexpr uint32_t kParts = WMK_MEET_ARRIVE | WMK_MEET_WAIT;
  wmk_meet_args kept{gates.memory[0]->as<void>(), gate.get(), kParts, 0, nullptr};
  CUDA(wmk_meet(&kept, streams.at[0]));
  wmk_meetings had[2] = {};
  for (int m = 0; m < 2; m++) {
    wmk_meet_args mine{boards.memory[0]->as<void>(), abort.get(), kParts, 0, &had[0]};
    CUDA(wmk_meet(&mine, streams.at[m]));
    wmk_meet_args other{boards.memory[1]->as<void>(), abort.get(), kParts, 0, &had[1]};
    CUDA(wmk_meet(&other, streams.at[2]));
  }
  const auto begin = std::chrono::steady_clock::now();
  bool waited = true;
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < keeps_s) {
    waited = waited && boards.epoch(0) == 0 && boards.epoch(1) == 0;
  }
  reinterpret_cast<volatile uint32_t *>(gate.get())[0] = 1;
  CUDA(cudaDeviceSynchronize());
  const bool right = waited && boards.epoch(0) == 2 && boards.epoch(1) == 2 && had[0].turns == 2 && had[1].turns == 2;
  if (!right) {
    fprintf(stderr, "WRONG: meetings on two streams: waited %d, epochs %llu %llu\n", waited,
            static_cast<unsigned long long>(boards.epoch(0)), static_cast<unsigned long long>(boards.epoch(1)));
  }
  return right;
}

// A replayed meeting and one on another stream, which nobody ordered: whichever comes first, none is lost.
bool replays_beside(double keeps_s) {
  Boards boards(2);
  Streams streams(4);
  Shared<uint32_t> abort(1);
  abort[0] = 0;
  wmk_meetings had[2] = {};
  auto meet = [&](uint32_t rank, cudaStream_t stream) {
    wmk_meet_args args{boards.memory[rank]->as<void>(), abort.get(), WMK_MEET_ARRIVE | WMK_MEET_WAIT, 0, &had[rank]};
    CUDA(wmk_meet(&args, stream));
  };
  cudaGraph_t captured;
  cudaGraphExec_t replay;
  CUDA(cudaStreamBeginCapture(streams.at[0], cudaStreamCaptureModeThreadLocal));
  meet(0, streams.at[0]);
  CUDA(cudaStreamEndCapture(streams.at[0], &captured));
  CUDA(cudaGraphInstantiate(&replay, captured, 0));
  CUDA(cudaGraphDestroy(captured));
  // Both of rank 0 wait for a rank that comes late.
  CUDA(cudaGraphLaunch(replay, streams.at[0]));
  meet(0, streams.at[1]);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < keeps_s) {
  }
  for (int m = 0; m < 2; m++) meet(1, streams.at[2]);
  // Rather than hang where one was lost.
  bool ended = false;
  while (!ended && std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 5 + keeps_s) {
    ended = cudaStreamQuery(streams.at[0]) == cudaSuccess && cudaStreamQuery(streams.at[1]) == cudaSuccess &&
            cudaStreamQuery(streams.at[2]) == cudaSuccess;
  }
  reinterpret_cast<volatile uint32_t *>(abort.get())[0] = 1;
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaGraphExecDestroy(replay));
  const bool right = ended && boards.epoch(0) == 2 && boards.epoch(1) == 2;
  if (!right) {
    fprintf(stderr, "WRONG: a replayed meeting beside another: ended %d, epochs %llu %llu\n", ended,
            static_cast<unsigned long long>(boards.epoch(0)), static_cast<unsigned long long>(boards.epoch(1)));
  }
  return right;
}

}  // namespace

void check_meetings(Tally &tally, Size size) {
  const bool few = size == Size::few;
  CUDA(wmk_gather(nullptr, nullptr));
  CUDA(wmk_scatter(nullptr, nullptr));
  CUDA(wmk_meet(nullptr, nullptr));
  for (uint32_t ranks : {1u, 2u, 3u, 8u}) {
    if (few && ranks == 3) continue;
    for (Way way : {Way::kByMeeting, Way::kByGather, Way::kEarly}) {
      tally.count(turns(ranks, few ? 4 : 50, way, false));
      tally.count(turns(ranks, few ? 3 : 20, way, true));
    }
  }
  tally.count(abort_ends_the_wait(few ? 4 : 1));
  tally.count(turns_order_streams(0.1));
  tally.count(replays_beside(0.1));
}
