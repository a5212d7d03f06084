#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "models/weights/safetensors.h"
#include "tests/parallel/run_ranks.h"
#include "tests/trainer/checkpoint_sample.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_integrity.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/common/durable_file.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "/rank-00000.safetensors";

// As of version 2, which has no checksum: what is read beyond that is tried.
void EditIndex(const std::string& folder, const std::function<void(Json&)>& edit) {
  Json index = Json::parse(ReadText(folder + "/index.json"));
  index["version"] = 2;
  index.erase("xxh3_64");
  edit(index);
  WriteText(folder + "/index.json", index.dump());
}

// Puts a value into a tensor's file, and what the file then is into the index.
void Poison(const std::string& folder, const std::string& tensor, float value) {
  const std::string path = folder + kFile;
  std::map<std::string, at::Tensor> tensors;
  {
    const SafetensorsReader reader(path);
    for (const auto& [name, entry] : reader.entries()) tensors[name] = reader.Read(name);
  }
  tensors.at(tensor).select(0, 100).select(0, 2).fill_(value);
  WriteSafetensors(path, {tensors.begin(), tensors.end()});
  Json index = Json::parse(ReadText(folder + "/index.json"));
  index["files"].front() = {{"bytes", SumFile(path).bytes},
                            {"xxh3_64", HexDigits(SumFile(path).xxh3)}};
  index.erase("xxh3_64");
  WriteText(folder + "/index.json", WithChecksum(index.dump(1)));
}

// Adds a tensor in one piece, edited.
void EditPiece(const std::string& folder, const std::function<void(Json&)>& edit) {
  EditIndex(folder, [&](Json& index) {
    Json piece = {{"file", kFile + 1}, {"dim", 0}, {"begin", 0}, {"end", 2}};
    edit(piece);
    index["tensors"]["t"] = {{"shape", {2, 2}}, {"pieces", Json::array({piece})}};
  });
}

struct Damage {
  const char* name;
  std::function<void(const std::string& folder)> apply;
};

const std::vector<Damage>& Damages() {
  static const std::vector<Damage> kDamages = {
      {"a file cut short", [](const auto& f) { fs::resize_file(f + kFile, 100); }},
      {"an empty file", [](const auto& f) { fs::resize_file(f + kFile, 0); }},
      {"a file missing", [](const auto& f) { fs::remove(f + kFile); }},
      {"a byte flipped",
       [](const auto& f) {
         std::string text = ReadText(f + kFile);
         text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
         WriteText(f + kFile, text);
       }},
      {"a file with more bytes",
       [](const auto& f) { WriteText(f + kFile, ReadText(f + kFile) + "x"); }},
      {"no index", [](const auto& f) { fs::remove(f + "/index.json"); }},
      {"an empty index", [](const auto& f) { WriteText(f + "/index.json", ""); }},
      {"an index cut short", [](const auto& f) { fs::resize_file(f + "/index.json", 200); }},
      {"an index that is a list", [](const auto& f) { WriteText(f + "/index.json", "[1]"); }},
      {"another format", [](const auto& f) { EditIndex(f, [](Json& j) { j["format"] = "x"; }); }},
      {"a later version", [](const auto& f) { EditIndex(f, [](Json& j) { j["version"] = 4; }); }},
      {"no checksum", [](const auto& f) { EditIndex(f, [](Json& j) { j["version"] = 3; }); }},
      {"a checksum that is not the last",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["xxh3_64"] = "0123456789abcdef"; }); }},
      {"a pipe in place of the index",
       [](const auto& f) {
         fs::remove(f + "/index.json");
         mkfifo((f + "/index.json").c_str(), 0600);
       }},
      {"a pipe in place of a file",
       [](const auto& f) {
         fs::remove(f + kFile);
         mkfifo((f + kFile).c_str(), 0600);
       }},
      {"a folder in place of the index",
       [](const auto& f) {
         fs::remove(f + "/index.json");
         fs::create_directory(f + "/index.json");
       }},
      {"a weight that is no number",
       [](const auto& f) { Poison(f, "layer.0.weight", std::nanf("")); }},
      {"an infinite moment", [](const auto& f) { Poison(f, "exp_avg.layer.0.weight", -INFINITY); }},
      {"another step than the folder's",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["step"] = 21; }); }},
      {"a step of nothing",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["step"] = 0; }); }},
      {"a step at the end of time",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["step"] = int64_t{1} << 62; }); }},
      {"more steps of the optimizer than of the run",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["optimizer_step"] = 21; }); }},
      {"more steps skipped in a row than skipped",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["non_finite_in_a_row"] = 2; }); }},
      {"a scale of the loss that is none",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["loss_scale"] = 1024; }); }},
      {"a scale of the loss of nothing",
       [](const auto& f) {
         EditIndex(f, [](Json& j) {
           j["state"]["loss_scale"] = {{"scale", 0}, {"good_steps", 0}};
         });
       }},
      {"a scale of the loss for fewer steps than none",
       [](const auto& f) {
         EditIndex(f, [](Json& j) {
           j["state"]["loss_scale"] = {{"scale", 1024}, {"good_steps", -1}};
         });
       }},
      {"answers that are owed so many times",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["owes_answers"] = 2; }); }},
      {"an epoch beyond the samples",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["epoch"] = 4000; }); }},
      {"no state", [](const auto& f) { EditIndex(f, [](Json& j) { j.erase("state"); }); }},
      {"a step that is no integer",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["step"] = 1.5; }); }},
      {"a negative position",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["state"]["pack"] = -1; }); }},
      {"files as a list", [](const auto& f) { EditIndex(f, [](Json& j) { j["files"] = {1}; }); }},
      {"a tensor in a file that is not listed",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["tensors"]["t"] = "other"; }); }},
      {"a tensor without pieces",
       [](const auto& f) { EditIndex(f, [](Json& j) {
                             j["tensors"]["t"] = {{"shape", {1}}};
                           }); }},
      {"a piece without a file",
       [](const auto& f) {
         EditIndex(f, [](Json& j) {
           j["tensors"]["t"] = {{"shape", {1}}, {"pieces", Json::array({Json::object()})}};
         });
       }},
      {"a piece that is no list of ranges",
       [](const auto& f) { EditPiece(f, [](Json& piece) {
                             piece["runs"] = {{0, 1, 2}};
                           }); }},
      {"a piece beyond its tensor",
       [](const auto& f) { EditPiece(f, [](Json& piece) {
                             piece["runs"] = {{0, 5}};
                           }); }},
      {"a piece along no dimension",
       [](const auto& f) { EditPiece(f, [](Json& piece) { piece["dim"] = 4294967296; }); }},
      {"a tensor in a number",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["tensors"]["t"] = 3; }); }},
      {"a file outside the folder",
       [](const auto& f) {
         EditIndex(f, [](Json& j) { j["files"]["../../x"] = j["files"].front(); });
       }},
      {"a checksum that is no text",
       [](const auto& f) { EditIndex(f, [](Json& j) { j["files"].front()["xxh3_64"] = 1; }); }},
  };
  return kDamages;
}

TEST_CASE("a damaged checkpoint is passed over for the one before", "[checkpoint][cpu]") {
  for (const Damage& damage : Damages()) {
    INFO(damage.name);
    const ScratchFolder scratch;
    SaveSample(scratch.path(), 10, 3);
    SaveSample(scratch.path(), 20, 3);
    const std::string newest = scratch.Path("checkpoints/step-00000020");
    damage.apply(newest);
    CHECK(FindCheckpoint(scratch.path()) == scratch.Path("checkpoints/step-00000010"));
    CHECK_THROWS_AS(FindCheckpoint(newest), DataError);
  }
}

TEST_CASE("the warning about a damaged checkpoint says one thing to do", "[checkpoint][cpu]") {
  CHECK(PassingOver("a: has 5 bytes, the index says 6; use another checkpoint") ==
        "a: has 5 bytes, the index says 6; this checkpoint is passed over");
  CHECK(PassingOver("a: no such file") == "a: no such file; this checkpoint is passed over");
}

TEST_CASE("another folder's checkpoint is not this step's", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 10, 3);
  SaveSample(scratch.path(), 20, 3);
  fs::rename(scratch.Path("checkpoints/step-00000020"), scratch.Path("checkpoints/step-00000030"));
  CHECK(FindCheckpoint(scratch.path()) == scratch.Path("checkpoints/step-00000010"));
  CHECK_THROWS_WITH(FindCheckpoint(scratch.Path("checkpoints/step-00000030")),
                    Catch::Contains("step is 20 in the folder of step 30"));
}

TEST_CASE("what is not finite is named", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 10, 3);
  const std::string folder = scratch.Path("checkpoints/step-00000010");
  Poison(folder, "layer.0.weight", INFINITY);
  CHECK_THROWS_WITH(FindCheckpoint(folder),
                    Catch::Contains("tensor layer.0.weight: element 402 is infinite or no number"));
}

TEST_CASE("no changed bit or byte of an index is believed", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 20, 3);
  const std::string folder = scratch.Path("checkpoints/step-00000020");
  const std::string path = folder + "/index.json", good = ReadText(path);
  REQUIRE_NOTHROW(ReadCheckpointIndex(folder, /*verify=*/false));
  int64_t tried = 0;
  std::vector<std::string> believed;
  const auto attempt = [&](const std::string& text) {
    if (text == good) return;
    ++tried;
    WriteText(path, text);
    try {
      ReadCheckpointIndex(folder, /*verify=*/false);
      believed.push_back(text);
    } catch (const DataError&) {
    }
  };
  const std::string bytes = std::string("09af\"{,\n") + '\0' + '\xff';
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string text = good;
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      attempt(text);
    }
    for (const char byte : bytes) {
      attempt(good.substr(0, i) + byte + good.substr(i + 1));
      attempt(good.substr(0, i) + byte + good.substr(i));
    }
    attempt(good.substr(0, i) + good.substr(i + 1));
    attempt(good.substr(0, i));
  }
  attempt(good + "\n");
  attempt(good + good);
  CHECK(believed.empty());
  CHECK(tried > 20 * static_cast<int64_t>(good.size()));
}

std::string FileOf(int rank) { return "/rank-0000" + std::to_string(rank) + ".safetensors"; }

// What FindCheckpoint() throws, or returns, on each of two ranks.
std::vector<std::string> Found(const std::string& path, const FileScan& scan) {
  std::vector<std::string> texts(2);
  CommOptions options;
  options.timeout = std::chrono::milliseconds(800);
  const auto find = [&](Communicator& world) {
    std::string& text = texts[static_cast<size_t>(world.rank())];
    try {
      text = FindCheckpoint(path, world, {}, scan);
    } catch (const DataError& error) {
      text = error.what();
    }
  };
  RunRanks(2, find, options);
  return texts;
}

TEST_CASE("ranks share out a checkpoint that takes longer to scan than they wait for each other",
          "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  RunRanks(5, [&](Communicator& world) {
    SaveCheckpoint(scratch.path(), SampleContent(10, world.rank()), 1, world);
  });
  std::mutex mutex;
  std::map<std::thread::id, int> files;
  const FileScan slow = [&](const std::string& path, const std::function<void()>& alive) {
    for (int part = 0; part < 9; ++part) {  // of a slow disk
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      alive();
    }
    const std::lock_guard lock(mutex);
    ++files[std::this_thread::get_id()];
    return ScanTensors(path, alive);
  };
  const std::string folder = scratch.Path("checkpoints/step-00000010");
  CHECK(Found(scratch.path(), slow) == std::vector<std::string>(2, folder));
  REQUIRE(files.size() == 2);
  CHECK(std::abs(files.begin()->second - files.rbegin()->second) == 1);
}

TEST_CASE("damage to any rank's file is found by the rank that scans it", "[checkpoint][cpu]") {
  const int damaged = GENERATE(range(0, 5));
  const ScratchFolder scratch;
  for (const int64_t step : {10, 20}) {
    RunRanks(5, [&](Communicator& world) {
      SaveCheckpoint(scratch.path(), SampleContent(step, world.rank()), 2, world);
    });
  }
  const std::string folder = scratch.Path("checkpoints/step-00000020");
  for (const int rank : std::set<int>{damaged, 4}) {  // of two, the first is named
    std::string text = ReadText(folder + FileOf(rank));
    text.back() = static_cast<char>(text.back() ^ 1);
    WriteText(folder + FileOf(rank), text);
  }
  std::string alone;
  try {
    FindCheckpoint(folder);
  } catch (const DataError& error) {
    alone = error.what();
  }
  CHECK(alone.starts_with(folder + FileOf(damaged) + ": checksum "));
  CHECK(Found(folder, ScanTensors) == std::vector<std::string>(2, alone));
  CHECK(Found(scratch.path(), ScanTensors) ==
        std::vector<std::string>(2, scratch.Path("checkpoints/step-00000010")));
}

TEST_CASE("an edited index of version 2 is not damage", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 10, 3);
  EditPiece(scratch.Path("checkpoints/step-00000010"), [](Json&) {});
  EditIndex(scratch.Path("checkpoints/step-00000010"), [](Json& j) { j["note"] = "kept"; });
  CHECK_FALSE(FindCheckpoint(scratch.path()).empty());
}

TEST_CASE("a broken link is no loss", "[checkpoint][cpu]") {
  const std::string target = GENERATE("step-00000099", "nowhere", "../..", "");
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 10, 3);
  SaveSample(scratch.path(), 20, 3);
  fs::remove(scratch.Path("checkpoints/latest"));
  if (!target.empty()) fs::create_symlink(target, scratch.Path("checkpoints/latest"));
  CHECK(FindCheckpoint(scratch.path()) == scratch.Path("checkpoints/step-00000020"));
}

TEST_CASE("a run whose checkpoints are all damaged does not start anew", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 10, 3);
  fs::remove(scratch.Path("checkpoints/step-00000010/index.json"));
  CHECK_THROWS_WITH(FindCheckpoint(scratch.path()),
                    Catch::Contains("none of the 1 checkpoints can be gone on from; ") &&
                        Catch::Contains("--resume"));
  // Commands other than `train` have no --resume.
  CHECK_THROWS_WITH(FindModel(scratch.path()),
                    Catch::Contains("none of the 1 checkpoints can be used; train again") &&
                        !Catch::Contains("--resume"));
  std::vector<int> refused(3);
  RunRanks(3, [&](Communicator& world) {
    try {
      FindCheckpoint(scratch.path(), world);
    } catch (const DataError&) {
      refused[static_cast<size_t>(world.rank())] = 1;
    }
  });
  CHECK(refused == std::vector<int>{1, 1, 1});
}

// Saves step 20 with two ranks, of which the second alone needs more than `limit` bytes a file;
// returns 0 when every rank got the same RunError.
int SaveBeyondLimit(const std::string& run_dir, rlim_t limit) {
  signal(SIGXFSZ, SIG_IGN);
  const rlimit file_size{limit, limit};
  if (setrlimit(RLIMIT_FSIZE, &file_size) != 0) return 2;
  std::vector<std::string> texts(2);
  RunRanks(2, [&](Communicator& world) {
    try {
      const int64_t numel = world.rank() == 1 ? 100'000 : 100;
      SaveCheckpoint(run_dir, SampleContent(20, world.rank(), numel), 1, world);
    } catch (const RunError& error) {
      texts[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  const bool names_file = texts[0].find("rank-00001.safetensors") != std::string::npos;
  return names_file && texts[0] == texts[1] ? 0 : 1;
}

TEST_CASE("a disk that is full for one rank is one error on all, and the old checkpoint stays",
          "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  SaveSample(scratch.path(), 10, 3);
  const pid_t child = fork();
  if (child == 0) _exit(SaveBeyondLimit(scratch.path(), 65536));
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(FindCheckpoint(scratch.path()) == scratch.Path("checkpoints/step-00000010"));
  CHECK_FALSE(fs::exists(scratch.Path("checkpoints/.tmp-step-00000020")));
}

TEST_CASE("a folder that cannot be made is one error on all ranks", "[checkpoint][cpu]") {
  const ScratchFolder scratch;
  WriteText(scratch.Path("checkpoints"), "a file in the way");
  std::vector<std::string> texts(3);
  RunRanks(3, [&](Communicator& world) {
    try {
      SaveCheckpoint(scratch.path(), SampleContent(1, world.rank()), 1, world);
    } catch (const RunError& error) {
      texts[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& text : texts) {
    CHECK(text.find(scratch.Path("checkpoints") + ": cannot create") == 0);
  }
}

}  // namespace
}  // namespace equipoise
