#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/simt/kernels/elementwise/activations.h"
#include "backends/simt/kernels/norm/norm_row.h"
#include "backends/simt/matrix_products.h"
#include "backends/simt/strided.h"

/// What the kernel of NormGemv is made of: a weight on its way from memory, rows of x that meet it,
/// and outputs. A launch lasts a few microseconds, so that each instruction on the way to the first
/// product counts: what the host can know is an argument.
///
/// Groups of lanes share the inputs of all of a block's outputs, in steps of two vectors of a lane:
/// four lanes have an output's vectors, in two halves that lie side by side.
namespace infini_train::simt {

inline constexpr int kGemvHalf = 4;  ///< vectors of an output, and lanes that have one each
inline constexpr int kGemvStep = 2 * kGemvHalf;
/// Outputs that a group works on at a time.
inline constexpr int kGemvTile = kGroupWidth / kGemvHalf;
/// Steps that a lane asks memory for at a time.
inline constexpr int kGemvBatch = 2;

/// Lanes of a block, at most.
inline constexpr int kGemvLanes = 256;
inline constexpr int kGemvGroups = kGemvLanes / kGroupWidth;

/// Sums of groups, of all rows of x, that a block has memory for at most.
inline constexpr int kGemvSums = 2048;

/// How a product is shared out. Blocks have neighbouring outputs, all in one strip where there is
/// room for their sums, else in strips whose sums take one half of the memory and the other in
/// turn.
struct GemvShare {
  int vectors = 0;        ///< of an output
  int group_steps = 0;    ///< of an output, of each group but the last one that has any
  int groups = 0;         ///< that have steps
  bool whole = false;     ///< whether these have all vectors of whole batches
  int block_outputs = 0;  ///< of a block
  int larger_blocks = 0;  ///< the first ones, which have one output more
  int strip = 0;          ///< outputs of a strip, a multiple of kGemvTile
  int sums = 0;           ///< of a strip
  int halves = 0;         ///< of the memory for them
  int slots = 0;          ///< of each group for batches on their way

  /// Vectors of a row of x as it is kept, which ends with a step.
  SIMT_HOST_DEVICE static constexpr std::int64_t RowVectors(std::int64_t vectors) {
    return (vectors + kGemvStep - 1) / kGemvStep * kGemvStep;
  }
  SIMT_HOST_DEVICE int RowVectors() const { return static_cast<int>(RowVectors(vectors)); }

  /// Of gated products `parts` is 2. A block has room for `max_slots` of each group.
  static GemvShare Of(std::int64_t vectors, std::int64_t outputs, std::int64_t blocks, int lanes,
                      int rows, int parts, int max_slots) {
    GemvShare share;
    share.vectors = static_cast<int>(vectors);
    const int steps = share.RowVectors() / kGemvStep;
    const int groups = lanes / kGroupWidth;
    share.group_steps = (steps + groups - 1) / groups;
    share.groups = (steps + share.group_steps - 1) / share.group_steps;
    share.whole = share.group_steps % kGemvBatch == 0 &&
                  share.groups * share.group_steps * kGemvStep == share.vectors;
    share.block_outputs = static_cast<int>(outputs / blocks);
    share.larger_blocks = static_cast<int>(outputs % blocks);
    const int output_sums = rows * parts * share.groups;
    const std::int64_t block_tiles = (outputs + blocks * kGemvTile - 1) / (blocks * kGemvTile);
    const bool one_strip = block_tiles * kGemvTile * output_sums <= kGemvSums;
    share.halves = one_strip ? 1 : 2;
    share.strip =
        static_cast<int>(one_strip ? block_tiles : kGemvSums / 2 / output_sums / kGemvTile) *
        kGemvTile;
    share.sums = share.strip * output_sums;
    const std::int64_t tiles = block_tiles * parts;
    const std::int64_t tile_batches = (share.group_steps + kGemvBatch - 1) / kGemvBatch;
    share.slots = static_cast<int>(std::min<std::int64_t>(max_slots, tiles * tile_batches));
    return share;
  }
};

template <typename T>
struct GemvArguments {
  T* out;
  const T* x;
  const T* weight;
  const T* bias;      ///< or null
  const T* residual;  ///< or null
  NormParameter<T> norm;
  bool normalizes;
  int parts;  ///< 2 of gated products
  int inputs, outputs;
  ComputeType<T> eps, inverse_inputs;
  GemvShare share;
};

/// The share of the calling lane.
struct GemvLane {
  int first_output, outputs;  ///< of the block
  int group;
  int first_step, steps;  ///< of the group
  int row;                ///< the lane's output of a tile
  int part;               ///< which of its output's lanes it is

  SIMT_DEVICE explicit GemvLane(const GemvShare& share) {
    const auto block = static_cast<int>(BlockIndex());
    first_output = block * share.block_outputs + Min(block, share.larger_blocks);
    outputs = share.block_outputs + (block < share.larger_blocks ? 1 : 0);
    group = ThreadIndex() / kGroupWidth;
    row = GroupLane<kGroupWidth>() / kGemvHalf;
    part = GroupLane<kGroupWidth>() % kGemvHalf;
    first_step = group * share.group_steps;
    steps = Max(0, Min(share.group_steps, share.RowVectors() / kGemvStep - first_step));
  }

  /// The first vector of an output in the group's step.
  SIMT_DEVICE int VectorOf(int step) const { return (first_step + step) * kGemvStep; }
  /// Whether a vector of the group's step is there.
  SIMT_DEVICE bool Has(const GemvShare& share, int step, int column) const {
    return step < steps && VectorOf(step) + column < share.vectors;
  }
  /// Outputs of the strip that begins with output `first` of the block.
  SIMT_DEVICE int StripFrom(const GemvShare& share, int first) const {
    return Min(share.strip, outputs - first);
  }
};

/// Copies of the weight to a ring in shared memory, in the order in which the lane's group needs
/// them: strip by strip, of gated products what opens the gate before what it lets through, tile by
/// tile, batch by batch. Lanes copy whole lines of memory for their group.
template <typename T, int N, int kSlots, bool kWhole>
class GemvCopies {
 public:
  /// `rings` are those of all groups, [slots, kBatchElements] each.
  SIMT_DEVICE GemvCopies(const GemvArguments<T>& args, const GemvLane& lane, const Shared<T>& rings)
      : args_(args),
        lane_(lane),
        ring_(rings.Sub(lane.group * args.share.slots * kBatchElements,
                        args.share.slots * kBatchElements)),
        strip_(lane.StripFrom(args.share, 0)),
        ended_(lane.steps == 0 || strip_ == 0) {
    strip_from_ = args.weight + std::int64_t{lane.first_output + Row()} * args.inputs +
                  (lane.VectorOf(0) + Column()) * N;
    tile_from_ = strip_from_;
  }

  static constexpr int kBatchElements = kGemvBatch * kGemvTile * kGemvStep * N;

  /// Asks for the next batch, if there is one.
  SIMT_DEVICE void Ask(int slot) {
    if (!ended_) {
      Copy(slot);
      Advance();
    }
    CommitCopies();
  }

  /// Waits for the batch of a slot, the first one that was asked for of kSlots, and takes the
  /// lane's vectors; what was not asked for is anything. All lanes of the group call it.
  SIMT_DEVICE void Take(int slot, Packed<T, N> (&vectors)[kGemvBatch][2]) const {
    WaitForCopies<kSlots - 1>();
    SyncGroup<kGroupWidth>();
    SIMT_UNROLL
    for (int i = 0; i < 2 * kGemvBatch; ++i) {
      const int column = i % 2 * kGemvHalf + lane_.part;
      vectors[i / 2][i % 2] =
          Packed<T, N>(ring_.template Load<N>(At(slot, i / 2, lane_.row, column)));
    }
    // Products of matrices wait for what all lanes have taken; else the next copies could come
    // first.
    if constexpr (!MatrixProducts<T>::kExist) SyncGroup<kGroupWidth>();
  }

 private:
  /// Rows of a tile of which lanes copy a step at once.
  static constexpr int kRowsAtOnce = kGroupWidth / kGemvStep;

  SIMT_DEVICE static int Row() { return GroupLane<kGroupWidth>() / kGemvStep; }
  SIMT_DEVICE static int Column() { return GroupLane<kGroupWidth>() % kGemvStep; }

  /// Halves of odd rows change places, so that neighbouring rows of a half lie in other banks.
  SIMT_DEVICE static int At(int slot, int step, int row, int column) {
    const int place = (slot * kGemvBatch + step) * kGemvTile + row;
    return (place * kGemvStep + (column ^ row % 2 * kGemvHalf)) * N;
  }

  SIMT_DEVICE void Copy(int slot) const {
    SIMT_UNROLL
    for (int row = 0; row < kGemvTile; row += kRowsAtOnce) {
      if (row_ + row + Row() >= strip_) continue;
      const T* const from = tile_from_ + std::int64_t{row} * args_.inputs + step_ * kGemvStep * N;
      SIMT_UNROLL
      for (int j = 0; j < kGemvBatch; ++j) {
        if (kWhole || lane_.Has(args_.share, step_ + j, Column()))
          CopyAsync<N>(ring_, At(slot, j, row + Row(), Column()), from + j * kGemvStep * N);
      }
    }
  }

  SIMT_DEVICE void Advance() {
    step_ += kGemvBatch;
    if (step_ < lane_.steps) return;
    step_ = 0;
    row_ += kGemvTile;
    tile_from_ += std::int64_t{kGemvTile} * args_.inputs;
    if (row_ >= strip_) BeginStrip();
  }

  SIMT_DEVICE void BeginStrip() {
    row_ = 0;
    if (++part_ < args_.parts) {
      tile_from_ = strip_from_ + std::int64_t{args_.outputs} * args_.inputs;
      return;
    }
    part_ = 0;
    first_ += args_.share.strip;
    ended_ = first_ >= lane_.outputs;
    strip_ = lane_.StripFrom(args_.share, first_);
    strip_from_ += std::int64_t{args_.share.strip} * args_.inputs;
    tile_from_ = strip_from_;
  }

  const GemvArguments<T>& args_;
  const GemvLane& lane_;
  Shared<T> ring_;
  const T* strip_from_;
  const T* tile_from_;
  int first_ = 0;  ///< output of the strip
  int strip_;      ///< outputs of the strip
  int part_ = 0;
  int row_ = 0;  ///< first one of the tile
  int step_ = 0;
  bool ended_;
};

/// Rows of x, normalised and rounded as the op RmsNorm does, through shared memory to the lanes
/// that need them. Groups prepare what meets their own vectors of the weight.
template <typename T, int N, int kRows>
class GemvInput {
 public:
  using C = ComputeType<T>;

  /// Rows are kept in `memory`, [kRows, share.RowVectors() * N]. Reads the norm's weights for the
  /// lane's first vector, zeros where it has none.
  SIMT_DEVICE GemvInput(const GemvArguments<T>& args, const GemvLane& lane, const Shared<T>& memory)
      : args_(args),
        memory_(memory),
        row_elements_(args.share.RowVectors() * N),
        begin_(lane.VectorOf(0) + GroupLane<kGroupWidth>()),
        end_(Min(args.share.vectors, lane.VectorOf(lane.steps))),
        padded_end_(lane.VectorOf(lane.steps)) {
    if (args.normalizes && begin_ < end_) args.norm.template Read<N>(begin_ * N, first_weights_);
  }

  SIMT_DEVICE void Stage() const {
    if (args_.normalizes) {
      StageNormalized();
    } else {
      for (int v = begin_; v < padded_end_; v += kGroupWidth) {
        SIMT_UNROLL
        for (int m = 0; m < kRows; ++m)
          Put(m, v, Read(m, v));
      }
    }
    SyncGroup<kGroupWidth>();
  }

  /// A vector of a row.
  SIMT_DEVICE Packed<T, N> Get(int m, int vector) const {
    if constexpr (kByMatrices) {
      const Shared<std::uint32_t> words = memory_.template As<std::uint32_t>();
      const auto even = words.template Load<2>(WordsOf(m, vector, 0));
      const auto odd = words.template Load<2>(WordsOf(m, vector, 1));
      return Packed<T, N>::OfWords({{even[0], odd[0], even[1], odd[1]}});
    } else {
      return Packed<T, N>(memory_.template Load<N>(m * row_elements_ + vector * N));
    }
  }
  /// For products of matrices: of the lane's vectors of a step, the even words or the odd ones.
  SIMT_DEVICE Vec<std::uint32_t, 4> HalvesOfWords(int m, int step, int part, int odd) const {
    return memory_.template As<std::uint32_t>().template Load<4>(
        WordsAt(m, step * kGemvHalf + part, odd));
  }

 private:
  static constexpr bool kByMatrices = MatrixProducts<T>::kExist;

  /// Where even or odd words are kept, [steps, kGemvHalf, odd, halves, 2]: of the first two.
  SIMT_DEVICE int WordsAt(int m, int place, int odd) const {
    return m * (row_elements_ / 2) + (place * 2 + odd) * 4;
  }
  /// The same of a vector.
  SIMT_DEVICE int WordsOf(int m, int vector, int odd) const {
    const auto v = static_cast<unsigned>(vector);
    const unsigned place = v / kGemvStep * kGemvHalf + v % kGemvHalf;
    return WordsAt(m, static_cast<int>(place), odd) + static_cast<int>(v / kGemvHalf % 2 * 2);
  }

  SIMT_DEVICE void Put(int m, int vector, const Packed<T, N>& numbers) const {
    if constexpr (kByMatrices) {
      const Shared<std::uint32_t> words = memory_.template As<std::uint32_t>();
      const auto& all = numbers.words();
      words.Store(WordsOf(m, vector, 0), Vec<std::uint32_t, 2>{{all[0], all[2]}});
      words.Store(WordsOf(m, vector, 1), Vec<std::uint32_t, 2>{{all[1], all[3]}});
    } else {
      memory_.template Store<N>(m * row_elements_ + vector * N, numbers.Unpack());
    }
  }

  SIMT_DEVICE Packed<T, N> Read(int m, int vector) const {
    Packed<T, N> numbers = {};
    if (vector < end_)
      numbers = Packed<T, N>::Of(args_.x + std::int64_t{m} * args_.inputs + vector * N);
    return numbers;
  }

  SIMT_DEVICE void StageNormalized() const {
    SIMT_SHARED(C, partial, kRows * kGemvGroups);  // sums of squares, [groups, kRows]
    C sums[kRows] = {};
    Packed<T, N> first[kRows];
    for (int v = begin_; v < padded_end_; v += kGroupWidth) {
      SIMT_UNROLL
      for (int m = 0; m < kRows; ++m) {
        const Packed<T, N> vector = Read(m, v);
        if (v == begin_) {
          first[m] = vector;
        } else {
          Put(m, v, vector);
        }
        C numbers[N];
        vector.Widen(numbers);
        SIMT_UNROLL
        for (int k = 0; k < N; ++k)
          sums[m] += numbers[k] * numbers[k];
      }
    }
    SIMT_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const C sum = ReduceGroup<kGroupWidth>(sums[m], SumOp{});
      if (GroupLane<kGroupWidth>() == 0) partial[ThreadIndex() / kGroupWidth * kRows + m] = sum;
    }
    SyncBlock();
    C rstd[kRows];
    SIMT_UNROLL
    for (int m = 0; m < kRows; ++m) {
      C sum = 0;
      SIMT_UNROLL
      for (int group = 0; group < kGemvGroups; ++group) {
        if (group < args_.share.groups) sum += partial[group * kRows + m];
      }
      rstd[m] = RsqrtFor<T>(sum * args_.inverse_inputs + args_.eps);
    }
    if (begin_ < padded_end_) Normalize(begin_, first, first_weights_, rstd);
    for (int v = begin_ + kGroupWidth; v < end_; v += kGroupWidth) {
      C weights[N];
      args_.norm.template Read<N>(v * N, weights);
      Packed<T, N> vectors[kRows];
      SIMT_UNROLL
      for (int m = 0; m < kRows; ++m)
        vectors[m] = Get(m, v);
      Normalize(v, vectors, weights, rstd);
    }
  }

  SIMT_DEVICE void Normalize(int vector, const Packed<T, N> (&rows)[kRows], const C (&weights)[N],
                             const C (&rstd)[kRows]) const {
    SIMT_UNROLL
    for (int m = 0; m < kRows; ++m) {
      C numbers[N];
      rows[m].Widen(numbers);
      SIMT_UNROLL
      for (int k = 0; k < N; ++k)
        numbers[k] *= rstd[m] * weights[k];
      Put(m, vector, Packed<T, N>::Narrow(numbers));
    }
  }

  const GemvArguments<T>& args_;
  Shared<T> memory_;
  int row_elements_;
  int begin_, end_, padded_end_;  ///< the lane's vectors, every kGroupWidth-th
  C first_weights_[N] = {};
};

/// Sums of products of a tile's outputs and rows of x, of the group's inputs.
template <typename T, int N, int kRows, bool kWhole>
class GemvTile {
 public:
  using C = ComputeType<T>;

  /// Adds those of the batch that begins with this step.
  SIMT_DEVICE void Add(Packed<T, N> (&weight)[kGemvBatch][2], const GemvInput<T, N, kRows>& input,
                       const GemvShare& share, const GemvLane& lane, int step) {
    SIMT_UNROLL
    for (int j = 0; j < kGemvBatch; ++j) {
      if (!kWhole && step + j >= lane.steps) break;
      SIMT_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (!kWhole && !lane.Has(share, step + j, half * kGemvHalf + lane.part))
          weight[j][half] = {};
      }
      AddStep(weight[j], input, lane, lane.first_step + step + j);
    }
  }

  /// Of the lane's output and row `lane.part` of x, if there is one.
  SIMT_DEVICE C Sum(const GemvLane& lane) const {
    if constexpr (kByMatrices) {
      return (sums_[0] + sums_[3]) + (more_sums_[0] + more_sums_[3]);
    } else {
      C result = 0;
      SIMT_UNROLL
      for (int m = 0; m < kRows; ++m) {
        const C sum = ReduceGroup<kGroupWidth, kGemvHalf>(sums_[m], SumOp{});
        if (lane.part == m) result = sum;
      }
      return result;
    }
  }

 private:
  static constexpr bool kByMatrices = MatrixProducts<T>::kExist;
  static_assert(kRows <= kGemvHalf);

  /// Of a step of all inputs.
  SIMT_DEVICE void AddStep(const Packed<T, N> (&weight)[2], const GemvInput<T, N, kRows>& input,
                           const GemvLane& lane, int step) {
    if constexpr (kByMatrices) {
      // A vector's words are a row of two chunks of the first matrix each: the even ones of one
      // row, the odd ones of another, which meet the same words of a row of x in two columns of the
      // second one. Products of even words and odd ones are of no use.
      const auto x = input.HalvesOfWords(lane.row / 2 % kRows, step, lane.part, lane.row % 2);
      SIMT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const auto& w = weight[half].words();
        MatrixProducts<T>::Add(half == 0 ? sums_ : more_sums_, {w[0], w[1], w[2], w[3]},
                               {x[2 * half], x[2 * half + 1]});
      }
    } else {
      SIMT_UNROLL
      for (int half = 0; half < 2; ++half) {
        C w[N];
        weight[half].Widen(w);
        SIMT_UNROLL
        for (int m = 0; m < kRows; ++m) {
          C x[N];
          input.Get(m, step * kGemvStep + half * kGemvHalf + lane.part).Widen(x);
          SIMT_UNROLL
          for (int k = 0; k < N; ++k)
            sums_[m] += w[k] * x[k];
        }
      }
    }
  }

  C sums_[kByMatrices ? 4 : kRows] = {};
  C more_sums_[kByMatrices ? 4 : 1] = {};  ///< so that products need not wait for the last ones
};

/// Sums of a strip's groups, [parts, groups, strip, kRows], and the outputs that they make.
template <typename T, int kRows>
class GemvOutputs {
 public:
  using C = ComputeType<T>;

  SIMT_DEVICE GemvOutputs(const GemvArguments<T>& args, const GemvLane& lane)
      : args_(args), lane_(lane) {}

  /// What is added to the lane's first one of the outputs from `first` on, which it so need not
  /// wait for later.
  SIMT_DEVICE void ReadAddends(int first) {
    if (ThreadIndex() < Items(first)) addends_ = AddendsOf(first, ThreadIndex());
  }

  /// Keeps what the group has for the tile from `row` of the strip on.
  SIMT_DEVICE void Keep(const Shared<C>& sums, int part, int row, C sum) const {
    if (lane_.part < kRows) sums[At(part, lane_.group, row + lane_.row, lane_.part)] = sum;
  }

  /// Writes the outputs from `first` on.
  SIMT_DEVICE void Write(const Shared<C>& sums, int first) const {
    for (int item = ThreadIndex(); item < Items(first); item += BlockSize()) {
      const Addends addends = item == ThreadIndex() ? addends_ : AddendsOf(first, item);
      const int m = item % kRows;
      C result = SumOf(sums, 0, item) + addends.bias[0];
      if (args_.parts == 2) result = Silu<T>(result) * (SumOf(sums, 1, item) + addends.bias[1]);
      Store(args_.out + std::int64_t{m} * args_.outputs + OutputOf(first, item),
            FromCompute<T>(result + addends.residual));
    }
  }

 private:
  struct Addends {
    C bias[2] = {};
    C residual = 0;
  };

  /// Pairs of an output and a row of x.
  SIMT_DEVICE int Items(int first) const { return lane_.StripFrom(args_.share, first) * kRows; }
  SIMT_DEVICE int OutputOf(int first, int item) const {
    return lane_.first_output + first + item / kRows;
  }
  SIMT_DEVICE int At(int part, int group, int row, int m) const {
    return ((part * args_.share.groups + group) * args_.share.strip + row) * kRows + m;
  }
  SIMT_DEVICE Addends AddendsOf(int first, int item) const {
    Addends addends;
    const int output = OutputOf(first, item);
    SIMT_UNROLL
    for (int part = 0; part < 2; ++part) {
      if (args_.bias != nullptr && part < args_.parts)
        addends.bias[part] = ToCompute(Load(args_.bias + output + part * args_.outputs));
    }
    if (args_.residual != nullptr) {
      addends.residual =
          ToCompute(Load(args_.residual + std::int64_t{item % kRows} * args_.outputs + output));
    }
    return addends;
  }
  SIMT_DEVICE C SumOf(const Shared<C>& sums, int part, int item) const {
    const int step = args_.share.strip * kRows;
    int at = part * args_.share.groups * step + item;
    C sum = 0;
    SIMT_UNROLL
    for (int group = 0; group < kGemvGroups; ++group) {
      if (group < args_.share.groups) sum += sums[at];
      at += step;
    }
    return sum;
  }

  const GemvArguments<T>& args_;
  const GemvLane& lane_;
  Addends addends_;
};

}  // namespace infini_train::simt
