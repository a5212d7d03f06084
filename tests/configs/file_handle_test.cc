#include "configs/base/file_handle.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>

namespace equipoise {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    out = FileHandle(ends[0]);
    in = FileHandle(ends[1]);
  }
  FileHandle out, in;
};

TEST_CASE("reads and writes go on after a part", "[files][cpu]") {
  Pipe pipe;
  const std::string sent(1 << 20, 'x');  // more than a pipe holds
  std::thread writer([&] {
    WriteFully(pipe.in, sent);
    pipe.in.Close();
  });
  std::string got(sent.size() + 10, '\0');
  const ssize_t bytes = ReadFully(pipe.out, got.data(), got.size());
  writer.join();
  CHECK(bytes == std::ssize(sent));  // fewer than asked for: the end
  CHECK(got.substr(0, sent.size()) == sent);
  CHECK(ReadFully(pipe.out, got.data(), 0) == 0);
}

TEST_CASE("bytes are read from an offset up to the end of the file", "[files][cpu]") {
  std::string name = "/tmp/file_handle_test_XXXXXX";
  FileHandle file(mkstemp(name.data()));
  REQUIRE(file.valid());
  unlink(name.c_str());
  REQUIRE(WriteFully(file, "0123456789"));
  std::string part(4, '\0');
  CHECK(ReadFullyAt(file, part.data(), 4, 3) == 4);
  CHECK(part == "3456");
  CHECK(ReadFullyAt(file, part.data(), 4, 8) == 2);
  CHECK(part.substr(0, 2) == "89");
  CHECK(ReadFullyAt(file, part.data(), 4, 10) == 0);
}

TEST_CASE("a failure gives its errno", "[files][cpu]") {
  const FileHandle none;
  char byte = 0;
  CHECK_FALSE(none.valid());
  errno = 0;
  CHECK(ReadFully(none, &byte, 1) == -1);
  CHECK(errno == EBADF);
  const FileHandle full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full.valid());
  CHECK_FALSE(WriteFully(full, "x"));
  CHECK(errno == ENOSPC);
}

TEST_CASE("a descriptor has one owner, which closes it", "[files][cpu]") {
  Pipe pipe;
  const int fd = pipe.in.get();
  {
    FileHandle moved = std::move(pipe.in);
    CHECK(moved.get() == fd);
    FileHandle other;
    other = std::move(moved);
    CHECK(other.valid());
    CHECK(fcntl(fd, F_GETFD) != -1);
  }
  CHECK(fcntl(fd, F_GETFD) == -1);
  CHECK(pipe.out.Close());
  CHECK_FALSE(pipe.out.valid());
}

}  // namespace
}  // namespace equipoise
