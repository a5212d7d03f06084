// Bytes over MPI's nonblocking point-to-point calls, data on one communicator and heartbeats on
// another. Open MPI progresses only inside its calls, hence Notifies() is false and the engine
// polls. A transfer is found by (peer, tag), the tag packing point-to-point or not, group and
// sequence number into 23 bits, the fewest that Open MPI's transports guarantee; numbers that wrap
// around still match, as MPI orders messages of equal tag. Errors are returned, not fatal, so that
// the engine can name the failed rank.

#include "parallel/comm/mpi_transport.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "parallel/comm/wake_event.h"

namespace equipoise {

void CheckMpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw RunError(fmt::format("{}: {}", call, text));
}

namespace {

using std::chrono::microseconds;

// Bits of a tag, 23 in all.
constexpr int kSequenceBits = 14, kGroupBits = 8;
static_assert(kMostGroups <= 1 << kGroupBits);
constexpr int kLargestTag = (1 << (kSequenceBits + kGroupBits + 1)) - 1;

int MpiTag(const Tag& tag) {
  const int sequence = static_cast<int>(tag.sequence & ((1 << kSequenceBits) - 1));
  const int group = tag.group & ((1 << kGroupBits) - 1);
  return (static_cast<int>(tag.point_to_point) << (kGroupBits + kSequenceBits)) |
         (group << kSequenceBits) | sequence;
}

// A message in one or more pieces.
class MpiRequest : public TransportRequest {
 public:
  // `sender`: -1 for a send.
  explicit MpiRequest(int sender) : sender_(sender) {}
  MpiRequest(const MpiRequest&) = delete;
  MpiRequest& operator=(const MpiRequest&) = delete;

  ~MpiRequest() override {
    for (const Piece& piece : pieces_) {
      MPI_Request request = piece.request;
      if (request == MPI_REQUEST_NULL) continue;
      if (sender_ >= 0) MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  MPI_Request* AddPiece(int bytes) {
    pieces_.push_back({MPI_REQUEST_NULL, bytes});
    return &pieces_.back().request;
  }

  bool Done() override {
    for (; next_ < pieces_.size(); ++next_) {
      Piece& piece = pieces_[next_];
      MPI_Status status;
      int done = 0;
      const int code = MPI_Test(&piece.request, &done, &status);
      if (code != MPI_SUCCESS && sender_ >= 0) CheckSize(code, status, piece.bytes);
      CheckMpi(code, "MPI_Test");
      if (!done) return false;
      if (sender_ >= 0) CheckSize(code, status, piece.bytes);
    }
    return true;
  }

 private:
  struct Piece {
    MPI_Request request;
    int bytes;
  };

  void CheckSize(int code, const MPI_Status& status, int expected) const {
    int error_class = MPI_SUCCESS, received = 0;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
      throw RunError(fmt::format("rank {} sends more than the {} bytes that this rank expects",
                                 sender_, expected));
    }
    if (code != MPI_SUCCESS) return;
    CheckMpi(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
    if (received == expected) return;
    throw RunError(fmt::format("rank {} sends {} bytes where this rank expects {}", sender_,
                               received, expected));
  }

  int sender_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;  // pieces before it are done
};

class MpiTransport : public Transport {
 public:
  MpiTransport(const MpiChannels& channels, const CommOptions& options)
      : options_(options), data_(channels.data), control_(channels.control) {
    CheckMpi(MPI_Comm_rank(data_, &rank_), "MPI_Comm_rank");
    CheckMpi(MPI_Comm_size(data_, &size_), "MPI_Comm_size");
    int* largest_tag = nullptr;
    int known = 0;
    CheckMpi(MPI_Comm_get_attr(data_, MPI_TAG_UB, static_cast<void*>(&largest_tag), &known),
             "MPI_Comm_get_attr");
    if (!known || *largest_tag < kLargestTag) {
      throw RunError("this MPI has message tags of less than 23 bits; use Open MPI 5");
    }
    outbox_.resize(size_);
    sending_.resize(size_, MPI_REQUEST_NULL);
    Listen();
  }

  ~MpiTransport() override {
    MPI_Cancel(&listening_);
    MPI_Request_free(&listening_);
    for (MPI_Request& request : sending_) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<TransportRequest> Send(int peer, const Tag& tag, const void* data,
                                         size_t bytes) override {
    auto request = std::make_unique<MpiRequest>(/*sender=*/-1);
    const auto send = options_.synchronous_sends ? MPI_Issend : MPI_Isend;
    ForEachPiece(bytes, [&](size_t offset, int count) {
      CheckMpi(send(static_cast<const char*>(data) + offset, count, MPI_BYTE, peer, MpiTag(tag),
                    data_, request->AddPiece(count)),
               "MPI_Isend");
    });
    return request;
  }

  std::unique_ptr<TransportRequest> Recv(int peer, const Tag& tag, void* data,
                                         size_t bytes) override {
    auto request = std::make_unique<MpiRequest>(peer);
    ForEachPiece(bytes, [&](size_t offset, int count) {
      CheckMpi(MPI_Irecv(static_cast<char*>(data) + offset, count, MPI_BYTE, peer, MpiTag(tag),
                         data_, request->AddPiece(count)),
               "MPI_Irecv");
    });
    return request;
  }

  void Publish(const RankStatus& status) override {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      // A rank that has stopped receives nothing: do not pile up messages for it.
      int done = 1;
      if (sending_[peer] != MPI_REQUEST_NULL) {
        CheckMpi(MPI_Test(&sending_[peer], &done, MPI_STATUS_IGNORE), "MPI_Test");
      }
      if (!done) continue;
      outbox_[peer] = status;
      CheckMpi(MPI_Isend(&outbox_[peer], sizeof(RankStatus), MPI_BYTE, peer, /*tag=*/0, control_,
                         &sending_[peer]),
               "MPI_Isend");
    }
  }

  void Collect(RankViews& views) override {
    while (true) {
      MPI_Status status;
      int done = 0;
      CheckMpi(MPI_Test(&listening_, &done, &status), "MPI_Test");
      if (!done) return;
      views[status.MPI_SOURCE] = {inbox_, std::chrono::steady_clock::now()};
      Listen();
    }
  }

  bool Notifies() const override { return false; }
  void Sleep(microseconds limit) override { wake_event_.Sleep(limit); }
  void Wake() override { wake_event_.Notify(); }

 private:
  void Listen() {
    CheckMpi(MPI_Irecv(&inbox_, sizeof inbox_, MPI_BYTE, MPI_ANY_SOURCE, /*tag=*/0, control_,
                       &listening_),
             "MPI_Irecv");
  }

  template <class Call>
  void ForEachPiece(size_t bytes, Call call) const {
    const auto piece = static_cast<size_t>(options_.piece_bytes);
    size_t offset = 0;
    do {
      const size_t count = std::min(piece, bytes - offset);
      call(offset, static_cast<int>(count));
      offset += count;
    } while (offset < bytes);
  }

  const CommOptions options_;
  const MPI_Comm data_, control_;
  int rank_ = 0, size_ = 1;

  RankStatus inbox_;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::vector<RankStatus> outbox_;    // by peer
  std::vector<MPI_Request> sending_;  // by peer

  WakeEvent wake_event_;
};

}  // namespace

MpiChannels OpenMpiChannels() {
  MpiChannels channels;
  for (MPI_Comm* comm : {&channels.data, &channels.control}) {
    CheckMpi(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
    CheckMpi(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  return channels;
}

std::unique_ptr<Transport> MakeMpiTransport(const MpiChannels& channels,
                                            const CommOptions& options) {
  EQUIPOISE_CHECK(options.piece_bytes > 0 && options.piece_bytes < (int64_t{1} << 31), "pieces of ",
                  options.piece_bytes, " bytes");
  return std::make_unique<MpiTransport>(channels, options);
}

}  // namespace equipoise
