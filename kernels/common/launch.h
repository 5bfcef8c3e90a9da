// How rows are cut into the pieces that threads move, and how a piece's number gives its row. Pure; the tests hold
// tables.
#pragma once

#include "define.h"

namespace wmk {

// How the elements of a row are accessed.
enum row_path : uint32_t {
  // Equal types, both sides of every row and the row's length multiples of the access.
  path_move = 1,
  // Equal types of at most 4 bytes at any alignment of the elements: wide loads are shifted into wide stores.
  path_shift = 2,
  // Different types; pieces are aligned on both sides, and rows are whole pieces.
  path_convert = 3,
  // Different types at any alignment of their elements.
  path_convert_shift = 4,
};

constexpr uint32_t access_limit = 16;

// The largest power of two, at most 16, that divides all of `bits` (addresses, strides, lengths, combined by or).
WMK_FN uint32_t access_bytes(uint64_t bits) {
  uint64_t lowest = bits & (0 - bits);
  return lowest == 0 || lowest > access_limit ? access_limit : static_cast<uint32_t>(lowest);
}

// Elements of a piece, but for path_move: the wider side has 16 bytes.
WMK_FN constexpr uint32_t piece_elements(uint32_t from_bytes, uint32_t to_bytes) {
  return access_limit / (from_bytes > to_bytes ? from_bytes : to_bytes);
}

// What decides the path of a call. Bits: addresses and strides of a side, combined by or.
struct row_facts {
  uint64_t cols;
  uint32_t from_bytes;
  uint32_t to_bytes;
  bool converts;
  uint64_t from_bits;
  uint64_t to_bits;
};

struct row_shape {
  uint32_t path;
  // A thread's access on path_move; 0 on the others.
  uint32_t access_bytes;
  uint64_t pieces_per_row;
};

// The shape of a call on a path that its facts allow. The shifting paths align their pieces to the row written, so a
// row that does not begin with a piece may take one more.
WMK_FN row_shape shape_on(uint32_t path, const row_facts &facts) {
  if (path == path_move) {
    const uint64_t row_bytes = facts.cols * facts.from_bytes;
    const uint32_t access = access_bytes(facts.from_bits | facts.to_bits | row_bytes);
    return {path, access, row_bytes / access};
  }
  const uint64_t piece = piece_elements(facts.from_bytes, facts.to_bytes);
  const uint64_t ragged = facts.to_bits % (piece * facts.to_bytes) == 0 ? 0 : piece - 1;
  const uint64_t reading = path == path_convert ? 0 : 1;
  return {path, 0, (facts.cols + ragged + piece - 1) / piece + reading};
}

WMK_FN row_shape shape_of(const row_facts &facts) {
  const uint64_t piece = piece_elements(facts.from_bytes, facts.to_bytes);
  if (facts.converts) {
    const bool aligned = facts.from_bits % (piece * facts.from_bytes) == 0 &&
                         facts.to_bits % (piece * facts.to_bytes) == 0 && facts.cols % piece == 0;
    return shape_on(aligned ? path_convert : path_convert_shift, facts);
  }
  const row_shape moved = shape_on(path_move, facts);
  if (moved.access_bytes == access_limit || facts.from_bytes > 4) return moved;
  // A shifted piece is worth the work of two narrow ones.
  const row_shape shifted = shape_on(path_shift, facts);
  return moved.pieces_per_row < 2 * shifted.pieces_per_row ? moved : shifted;
}

// A piece's row: a product and a shift in place of a division.
struct split {
  uint32_t per_row;
  uint32_t multiplier;
  uint32_t shift;
};

// Pieces of one launch stay below this, so that the sum of two numbers of pieces and a block's share has 32 bits.
constexpr uint64_t pieces_limit = (uint64_t{1} << 31) - 4096;

// For pieces below 2^31: with l = ceil(log2 d) and m = floor(2^(31 + l) / d) + 1, n / d = n * m >> (31 + l).
// `per_row` is at least 1 and below the limit.
WMK_FN split split_of(uint32_t per_row) {
  uint32_t log = 0;
  while ((uint64_t{1} << log) < per_row) log++;
  return {per_row, static_cast<uint32_t>((uint64_t{1} << (31 + log)) / per_row + 1), 31 + log};
}

WMK_FN uint32_t row_of(const split &by, uint32_t piece) {
  return static_cast<uint32_t>(uint64_t{piece} * by.multiplier >> by.shift);
}

// Centers of a tile of a sampling. Tiles are small where centers are few, so that all of a GPU has something to do.
WMK_FN uint32_t seats_of(uint64_t centers, uint32_t fewest, uint32_t most) {
  constexpr uint64_t tiles = 2048;
  const uint64_t seats = centers / tiles;
  return seats < fewest ? fewest : seats > most ? most : static_cast<uint32_t>(seats);
}

}  // namespace wmk
