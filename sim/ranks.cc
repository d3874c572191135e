#include "sim/ranks.h"

#include <thread>
#include <utility>

#include "sim/launch.h"

#ifdef STALLCAST_MPI
#define OMPI_SKIP_MPICXX 1  // the C interface alone
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdlib>
#include <list>
#include <set>
#endif

namespace stallcast::sim {

#ifdef STALLCAST_MPI

namespace {

using namespace std::chrono_literals;

class MpiRanks : public Ranks {
 public:
  MpiRanks() {
    // Open MPI would read a sender's memory, which a rank that dies takes with it, and which
    // containers forbid.
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", /*overwrite=*/0);
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    // A lost rank shows by its silence; calls that fail for it are no reason to end.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void Send(int to, std::string message) override {
    Outgoing& sent = outgoing_.emplace_back(std::move(message));
    if (MPI_Isend(sent.text.data(), static_cast<int>(sent.text.size()), MPI_BYTE, to, 0,
                  MPI_COMM_WORLD, &sent.request) != MPI_SUCCESS) {
      outgoing_.pop_back();
    }
    Advance();
  }

  // Never waits for the rest of a message: a rank that dies may have sent half of it.
  std::optional<Message> Receive() override {
    Advance();
    int there = 0, size = 0;
    MPI_Message found;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, &found, &status) == MPI_SUCCESS &&
        there) {
      MPI_Get_count(&status, MPI_BYTE, &size);
      Incoming& begun = incoming_.emplace_back();
      begun.message = {status.MPI_SOURCE, std::string(static_cast<size_t>(size), '\0')};
      MPI_Imrecv(begun.message.text.data(), size, MPI_BYTE, &found, &begun.request);
    }
    std::set<int> unfinished;  // senders whose later messages have to wait
    for (auto at = incoming_.begin(); at != incoming_.end(); ++at) {
      int whole = 0;
      if (unfinished.contains(at->message.from)) continue;
      if (MPI_Test(&at->request, &whole, MPI_STATUS_IGNORE) != MPI_SUCCESS || !whole) {
        unfinished.insert(at->message.from);
        continue;
      }
      Message message = std::move(at->message);
      incoming_.erase(at);
      return message;
    }
    return std::nullopt;
  }

  bool Drain(std::chrono::milliseconds longest) override {
    const auto end = std::chrono::steady_clock::now() + longest;
    for (Advance(); !outgoing_.empty(); Advance()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

  void Leave() override { MPI_Finalize(); }

 private:
  struct Outgoing {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
    explicit Outgoing(std::string of) : text(std::move(of)) {}
  };

  struct Incoming {
    Message message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  // Forgets what has gone.
  void Advance() {
    std::erase_if(outgoing_, [](Outgoing& sent) {
      int gone = 0;
      return MPI_Test(&sent.request, &gone, MPI_STATUS_IGNORE) != MPI_SUCCESS || gone;
    });
  }

  int rank_ = 0, size_ = 1;
  std::list<Outgoing> outgoing_;
  std::list<Incoming> incoming_;  // in the order in which they were begun
};

}  // namespace

std::unique_ptr<Ranks> JoinRanks() {
  return LaunchOf().size > 1 ? std::make_unique<MpiRanks>() : nullptr;
}

#else

std::unique_ptr<Ranks> JoinRanks() { return nullptr; }

#endif

}  // namespace stallcast::sim
