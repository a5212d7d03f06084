#pragma once

#include <cstddef>
#include <cstdint>

// What libequipoise_parquet.so offers: the one part that links Arrow and Parquet (62 MB), so that
// the program runs, and is packed, without them. Plain C, as each side may have another allocator.

extern "C" {

// Takes bytes of a row; they are valid during the call.
using ParquetSink = void (*)(void* user, const char* bytes, size_t count);

struct ParquetApi {
  // Opens a file; sets the number of its rows. Null: `error` holds the reason, one line.
  void* (*open)(const char* path, int64_t* rows, char* error, size_t error_bytes);
  // Gives a row, `row` from 0, as JSON, and behind a NUL each of its pictures as 8 bytes, its size,
  // little endian, and its bytes. In the JSON a picture is {"bytes": its number, ...}. Thread-safe;
  // the last row groups that were read are kept. Returns 0, or 1 with the reason in `error`.
  int (*row)(void* file, int64_t row, ParquetSink sink, void* user, char* error,
             size_t error_bytes);
  void (*close)(void* file);
};

// The library's one symbol.
const ParquetApi* EquipoiseParquet();

}  // extern "C"
