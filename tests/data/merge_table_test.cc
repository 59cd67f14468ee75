#include "infini_train/data/tokenizer/merge_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace infini_train {
namespace {

using Rules = std::map<std::pair<int32_t, int32_t>, MergeTable::Merge>;

// The definition, one pass over the symbols for each merge.
std::vector<int32_t> MergeByDefinition(const Rules& rules, std::vector<int32_t> symbols) {
  for (;;) {
    size_t best = symbols.size();
    MergeTable::Merge merge;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rule = rules.find({symbols[i], symbols[i + 1]});
      if (rule != rules.end() && rule->second.rank < merge.rank) {
        best = i;
        merge = rule->second;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = merge.id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(MergeTable, MergesByDefinitionAtEveryLength) {
  uint64_t state = 1;
  const auto below = [&state](uint64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % limit;
  };
  for (int round = 0; round < 40; ++round) {
    // Rules over 4 symbols and what they merge to; ranks are not in the order of the ids.
    Rules rules;
    int32_t next_id = 4;
    while (rules.size() < 60) {
      const auto left = static_cast<int32_t>(below(static_cast<uint64_t>(next_id)));
      const auto right = static_cast<int32_t>(below(static_cast<uint64_t>(next_id)));
      const auto rank = static_cast<uint32_t>((rules.size() * 37 + round) % 61);
      if (rules.emplace(std::pair(left, right), MergeTable::Merge{rank, next_id}).second) ++next_id;
    }
    MergeTable table;
    table.Reserve(rules.size());
    for (const auto& [pair, merge] : rules)
      table.Add(pair.first, pair.second, merge);
    for (const size_t length : {0, 1, 2, 3, 10, 63, 64, 65, 66, 200, 700}) {
      std::vector<int32_t> symbols(length);
      for (int32_t& symbol : symbols)
        symbol = static_cast<int32_t>(below(4));
      const std::vector<int32_t> expected = MergeByDefinition(rules, symbols);
      table.Apply(symbols);
      EXPECT_EQ(symbols, expected) << "length " << length;
    }
  }
}

TEST(MergeTable, ALaterRuleForAPairReplacesTheEarlier) {
  MergeTable table;
  table.Reserve(2);
  table.Add(1, 2, {0, 3});
  table.Add(1, 2, {5, 4});
  EXPECT_EQ(table.Find(1, 2).rank, 5u);
  EXPECT_EQ(table.Find(1, 2).id, 4);
  EXPECT_EQ(table.Find(2, 1).rank, MergeTable::kNoMerge);
}

TEST(MergeTable, WithoutRulesNothingMerges) {
  const MergeTable table;
  std::vector<int32_t> symbols = {1, 2, 3};
  table.Apply(symbols);
  EXPECT_EQ(symbols, (std::vector<int32_t>{1, 2, 3}));
}

}  // namespace
}  // namespace infini_train
