#include "tests/parity/random_cell.h"

#include <algorithm>
#include <functional>
#include <string>

#include "parallel/schedule/builders.h"

namespace equipoise::testing {
namespace {

bool IsText(const Cell& cell) { return cell.model.starts_with("qwen2-tied"); }

void ThrowMesh(Cell& cell, Dice& dice, int most_ranks) {
  cell.context = 1;
  do {
    cell.data = 1 + dice.Throw(3);
    cell.pipeline = 1 + dice.Throw(IsText(cell) ? 2 : 4);  // as many layers as there are
    cell.tensor = 1 + dice.Throw(3);
  } while (cell.ranks() > most_ranks);
}

// Layers of the models of CellModel, and of their part behind an encoder.
constexpr int kLayers = 8, kTextLayers = 4;

// Puts the encoder of one cell in three into the bubbles. With dice of its own, so that the cells
// without are those that were thrown before there were any.
void ThrowBubbles(Cell& cell) {
  const std::string thrown = cell.modality + " " + std::to_string(cell.ranks());
  Dice dice(static_cast<unsigned>(std::hash<std::string>()(thrown)));
  if (dice.Throw(3) > 0) return;
  cell.encoder = kBubblePlacements[static_cast<size_t>(dice.Throw(4))];
  do {
    cell.encoder_ranks = 1 + dice.Throw(cell.pipeline);
  } while (cell.pipeline % cell.encoder_ranks != 0);
  const int most = (kLayers - kTextLayers) / cell.encoder_ranks;
  cell.encoder_chunks = 1 + dice.Throw(std::min(3, most));
  // Whole copies on each tensor rank, of two or three.
  if (cell.tensor > 1 && dice.Throw(2) == 0) cell.encoder_tensor = 1;
}

// Lets one cell in three with pictures take them at their own size. With dice of its own, so that
// the others are those that were thrown before there were any.
void ThrowGrids(Cell& cell) {
  if (IsText(cell)) return;
  Dice dice(static_cast<unsigned>(std::hash<std::string>()(cell.modality + " grids")));
  if (dice.Throw(3) == 0) cell.model = "qwen2_5_vl";
}

// Gives one cell in four adapters. With dice of its own, as ThrowBubbles().
void ThrowAdapters(Cell& cell) {
  Dice dice(static_cast<unsigned>(std::hash<std::string>()(cell.modality + " adapters")));
  if (dice.Throw(4) > 0) return;
  cell.model += dice.Pick<std::string>({"+lora", "+dropout", "+dora", "+int8"});
}

// Lets tensor ranks share out rows in every second cell. With dice of its own, as ThrowBubbles().
void ThrowSequence(Cell& cell) {
  const std::string thrown = cell.modality + " sequence " + std::to_string(cell.ranks());
  Dice dice(static_cast<unsigned>(std::hash<std::string>()(thrown)));
  cell.sequence = cell.tensor > 1 && dice.Throw(2) == 0;
}

// Lets two or three ranks share out the tokens in one cell in three where that is possible: heads,
// or rows of all heads. With dice of its own, as ThrowBubbles().
void ThrowContext(Cell& cell, int most_ranks) {
  // Pictures are shared out in the stage that has the token embedding.
  const bool one_stage = cell.pipeline == 1 && !FindSchedule(cell.schedule)->chunked();
  const bool possible = cell.encoder == EncoderPlacement::kInline && (IsText(cell) || one_stage);
  // An encoder that draws at random is refused.
  const bool draws = !IsText(cell) && cell.model.ends_with("+dropout");
  if (!possible || draws || 2 * cell.ranks() > most_ranks) return;
  const std::string thrown = cell.modality + " context " + std::to_string(cell.ranks());
  Dice dice(static_cast<unsigned>(std::hash<std::string>()(thrown)));
  if (dice.Throw(3) != 0) return;
  cell.context = dice.Throw(2) == 0 && 3 * cell.ranks() <= most_ranks ? 3 : 2;
}

// Lets one cell in three with several ranks of the same weights share out gradients too, or weights
// as well (ZeRO 2, 3). With dice of its own, as ThrowBubbles().
void ThrowZero(Cell& cell) {
  if (cell.data * cell.context == 1 || FillsBubbles(cell.encoder)) return;
  const std::string thrown = cell.modality + " more zero " + std::to_string(cell.ranks());
  Dice dice(static_cast<unsigned>(std::hash<std::string>()(thrown)));
  if (dice.Throw(3) == 0) cell.zero = 2 + dice.Throw(2);
}

// Lets pairs of ranks share out a copy of what ZeRO does in one cell in two where there are
// several. With dice of its own, as ThrowBubbles().
void ThrowZeroRanks(Cell& cell) {
  cell.zero_ranks = 0;
  const int holders = cell.data * cell.context;
  if (cell.zero == 0 || holders < 4 || holders % 2 != 0) return;
  const std::string thrown = cell.modality + " zero " + std::to_string(cell.ranks());
  Dice dice(static_cast<unsigned>(std::hash<std::string>()(thrown)));
  if (dice.Throw(2) == 0) cell.zero_ranks = 2;
}

// All that a mesh leaves open.
void ThrowRest(Cell& cell, Dice& dice) {
  cell.schedule =
      dice.Pick<std::string>({"naive", "gpipe", "1f1b", "zb_h1", "interleaved", "zb_v"});
  cell.zero = dice.Throw(2);
  const bool apart = !IsText(cell) && cell.pipeline > 1 && dice.Throw(3) == 0;
  cell.encoder = EncoderPlacement::kInline;
  cell.encoder_ranks = cell.encoder_chunks = 1;
  cell.encoder_tensor = 0;
  if (apart) {
    cell.encoder = EncoderPlacement::kDisaggregated;
    cell.encoder_ranks = 1 + dice.Throw(cell.pipeline - 1);
  } else if (!IsText(cell)) {
    ThrowBubbles(cell);
  }
  const bool filled = FillsBubbles(cell.encoder);
  // As many stages as there are layers to cut into.
  const int most = (apart || filled || IsText(cell) ? kTextLayers : kLayers) /
                   (apart ? cell.pipeline - cell.encoder_ranks : cell.pipeline);
  cell.chunks = cell.schedule == "interleaved" ? std::min(most, 2 + dice.Throw(3)) : 0;
  if (most < 2 && FindSchedule(cell.schedule)->chunked()) cell.schedule = "1f1b", cell.chunks = 0;
  cell.recompute = dice.Throw(2) == 1 ? "random " + std::to_string(dice.Throw(1000)) : "none";
  ThrowSequence(cell);
}

// Trains a part of one of the frozen modules in one cell in two that has such. With dice of its
// own, as ThrowBubbles().
void ThrowUnfreeze(Cell& cell) {
  if (cell.freeze.empty() || cell.prefetch || cell.model.find('+') != std::string::npos) return;
  const std::string thrown = cell.modality + " unfreeze " + std::to_string(cell.ranks());
  Dice dice(static_cast<unsigned>(std::hash<std::string>()(thrown)));
  if (dice.Throw(2) != 0 || cell.freeze.front() == "projector") return;
  const std::string& module =
      cell.freeze[static_cast<size_t>(dice.Throw(static_cast<int>(cell.freeze.size())))];
  cell.unfreeze = {dice.Pick<std::string>({module + "[-1:]", module + "[:1]", "mlp"})};
}

}  // namespace

Cell RandomCell(Dice& dice, int most_ranks) {
  Cell cell;
  cell.model = dice.Pick<std::string>({"internvl-qwen2", "internvl-llama", "qwen2-tied"});
  cell.modality = "random " + std::to_string(dice.Throw(1000));
  if (!IsText(cell)) {
    cell.freeze = dice.Pick<std::vector<std::string>>(
        {{}, {}, {"vision"}, {"vision", "llm"}, {"llm"}, {"projector"}});
  }
  cell.precision = dice.Throw(4) == 0 ? "bf16" : "fp32";
  ThrowMesh(cell, dice, most_ranks);
  cell.micro_batches = cell.data * (1 + dice.Throw(6));
  ThrowRest(cell, dice);
  ThrowGrids(cell);
  ThrowAdapters(cell);
  ThrowUnfreeze(cell);
  ThrowContext(cell, most_ranks);
  ThrowZero(cell);
  ThrowZeroRanks(cell);
  return cell;
}

void ThrowDelayed(Cell& cell) {
  if (cell.pipeline == 1 || FillsBubbles(cell.encoder) || cell.zero > 1) return;
  Dice dice(static_cast<unsigned>(
      std::hash<std::string>()(cell.modality + " delayed " + std::to_string(cell.ranks()))));
  if (dice.Throw(3) != 0) return;
  cell.schedule = "pipedream_2bw";
  cell.chunks = 0;
  cell.turning = true;
}

Cell SpreadAnew(Cell cell, Dice& dice, int most_ranks) {
  const int before = cell.ranks();
  do {
    ThrowMesh(cell, dice, most_ranks);
  } while (cell.micro_batches % cell.data != 0 || cell.ranks() == before);
  ThrowRest(cell, dice);
  ThrowContext(cell, most_ranks);
  ThrowZero(cell);
  ThrowZeroRanks(cell);
  return cell;
}

}  // namespace equipoise::testing
