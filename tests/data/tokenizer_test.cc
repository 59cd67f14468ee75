#include "infini_train/data/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "tests/common/errors.h"
#include "tests/data/token_files.h"
#include "tests/data/tokenizer_files.h"

namespace infini_train {
namespace {

using test::ByteLevelTokenizer;
using test::ByteVocabulary;
using test::InAlphabet;
using test::TemporaryFolder;
using test::WriteJson;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

class TokenizerFile : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> Load(const Json& json) const {
    WriteJson(path_, json);
    return LoadTokenizer(path_);
  }

  // The message with which a file is refused, without the path in front.
  std::string Refusal(const Json& json) const {
    try {
      Load(json);
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_THAT(message, ::testing::StartsWith(path_ + ": "));
      return message.substr(std::min(message.size(), path_.size() + 2));
    }
    return "no error";
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "tokenizer.json";
};

// A generator that is the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Below(uint64_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % limit;
  }

 private:
  uint64_t state_;
};

TEST(ByteTokenizer, MapsBytes) {
  const auto tokenizer = LoadTokenizer("bytes");
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_THAT(tokenizer->eos_ids(), ElementsAre(256));
  EXPECT_EQ(tokenizer->document_delimiter(), 256);
  EXPECT_EQ(tokenizer->name(), "bytes");
  std::string text;
  for (int byte = 0; byte < 256; ++byte)
    text += static_cast<char>(byte);
  const std::vector<int32_t> ids = tokenizer->Encode(text);
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(ids[byte], byte);
  EXPECT_EQ(tokenizer->Decode(ids), text);
  EXPECT_THAT(tokenizer->Encode(""), IsEmpty());
  EXPECT_EQ(tokenizer->Encode("<|endoftext|>").size(), 13u);
  const std::vector<int32_t> with_end = {104, 105, 256, -1, 257, 99999};
  EXPECT_EQ(tokenizer->Decode(with_end), "hi<|endoftext|>");
  EXPECT_EQ(tokenizer->Decode(with_end, /*skip_special_tokens=*/true), "hi");
}

TEST(ByteTokenizer, SavesAFileThatIsItself) {
  const TemporaryFolder folder;
  LoadTokenizer("bytes")->Save(folder.path());
  const auto loaded = LoadTokenizer(folder.path());
  EXPECT_EQ(loaded->name(), "bytes");
  // Written by another program, it is a byte-level BPE with the same ids.
  const Json json = Json::parse(ReadFile(folder / "tokenizer.json"));
  WriteJson(folder / "tokenizer.json", json);
  const auto rewritten = LoadTokenizer(folder / "tokenizer.json");
  EXPECT_EQ(rewritten->name(), folder / "tokenizer.json");
  EXPECT_EQ(rewritten->vocab_size(), 257);
  EXPECT_THAT(rewritten->eos_ids(), ElementsAre(256));
  std::string text = "some text \n";
  for (int byte = 0; byte < 256; ++byte)
    text += static_cast<char>(byte);
  EXPECT_EQ(rewritten->Encode(text), loaded->Encode(text));
  EXPECT_EQ(rewritten->Decode(rewritten->Encode(text)), text);
}

Json MergeVocabulary() {
  Json vocabulary = ByteVocabulary();
  vocabulary["ab"] = 256;
  vocabulary["abc"] = 257;
  vocabulary[InAlphabet(" a")] = 258;
  vocabulary[InAlphabet(" ab")] = 259;
  return vocabulary;
}

Json MergeStrings() {
  const std::string space = InAlphabet(" ");
  return {"a b", "ab c", space + " a", space + "a b"};
}

Json MergePairs() {
  const std::string space = InAlphabet(" ");
  return Json::array({{"a", "b"}, {"ab", "c"}, {space, "a"}, {space + "a", "b"}});
}

TEST_F(TokenizerFile, ReadsMergesInBothForms) {
  const auto strings = Load(ByteLevelTokenizer(MergeVocabulary(), MergeStrings()));
  const auto pairs = Load(ByteLevelTokenizer(MergeVocabulary(), MergePairs()));
  for (const auto& tokenizer : {strings, pairs}) {
    EXPECT_THAT(tokenizer->Encode("abc ab"), ElementsAre(257, 220, 256));
    EXPECT_THAT(tokenizer->Encode("aab"), ElementsAre(64, 256));
    EXPECT_THAT(tokenizer->Encode("abab"), ElementsAre(256, 256));
    EXPECT_THAT(tokenizer->Encode(""), IsEmpty());
  }
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    std::string text;
    for (uint64_t n = random.Below(40); n > 0; --n)
      text += "abc "[random.Below(4)];
    const std::vector<int32_t> ids = strings->Encode(text);
    EXPECT_EQ(ids, pairs->Encode(text)) << text;
    EXPECT_EQ(strings->Decode(ids), text);
  }
}

TEST_F(TokenizerFile, PairsMayHoldSpaces) {
  Json json;
  json["model"] = {{"type", "BPE"},
                   {"vocab", {{"a", 0}, {"b", 1}, {" ", 2}, {" b", 3}, {"a b", 4}}},
                   {"merges", Json::array({{" ", "b"}, {"a", " b"}})}};
  const auto tokenizer = Load(json);
  EXPECT_THAT(tokenizer->Encode("a b"), ElementsAre(4));
  EXPECT_THAT(tokenizer->Encode("a  b"), ElementsAre(0, 2, 3));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a  b")), "a  b");
}

TEST_F(TokenizerFile, RefusesBadMergesWithTheirIndex) {
  const auto refusal = [this](const Json& merges) {
    return Refusal(ByteLevelTokenizer(MergeVocabulary(), merges));
  };
  EXPECT_EQ(refusal(Json::array({{"a", "b"}, {"ab", "c", "d"}})),
            R"(model.merges[1]: expected two strings, found ["ab","c","d"])");
  EXPECT_EQ(refusal({"a b", "ab"}),
            "model.merges[1]: expected two tokens with one space between them, found \"ab\"");
  EXPECT_EQ(refusal({"a  b"}),
            "model.merges[0]: expected two tokens with one space between them, found \"a  b\"");
  EXPECT_EQ(refusal({"a b", "ab zz"}), "model.merges[1]: \"zz\" is not in the vocabulary");
  EXPECT_EQ(refusal(Json::array({{"a", "b"}, {"b", "c"}})),
            "model.merges[1]: \"bc\" is not in the vocabulary");
  EXPECT_EQ(refusal(Json::array({"a b", Json::array({"ab", "c"}), 5})),
            "model.merges[2]: expected \"left right\" or [\"left\", \"right\"], found 5");
  EXPECT_EQ(refusal(Json::array({{"a", 1}})),
            R"(model.merges[0]: expected two strings, found ["a",1])");
}

TEST_F(TokenizerFile, WholePiecesBeatMergesIfTheFileSaysSo) {
  Json vocabulary = ByteVocabulary();
  vocabulary["ab"] = 256;
  vocabulary["abc"] = 257;
  vocabulary[InAlphabet("\u1EC7")] = 258;
  Json json = ByteLevelTokenizer(vocabulary, {"a b"});
  const auto absent = Load(json);
  json["model"]["ignore_merges"] = false;
  const auto merging = Load(json);
  json["model"]["ignore_merges"] = true;
  const auto ignoring = Load(json);

  EXPECT_THAT(ignoring->Encode("abc"), ElementsAre(257));
  EXPECT_THAT(ignoring->Encode("abcab"), ElementsAre(256, 66, 256));
  EXPECT_THAT(ignoring->Encode(" abc"), ElementsAre(220, 256, 66));
  EXPECT_THAT(ignoring->Encode("\u1EC7"), ElementsAre(258));
  EXPECT_THAT(ignoring->Encode("abc abc"), ElementsAre(257, 220, 256, 66));
  for (const auto& tokenizer : {absent, merging}) {
    EXPECT_THAT(tokenizer->Encode("abc"), ElementsAre(256, 66));
    EXPECT_THAT(tokenizer->Encode("abcab"), ElementsAre(256, 66, 256));
    EXPECT_THAT(tokenizer->Encode(" abc"), ElementsAre(220, 256, 66));
    EXPECT_THAT(tokenizer->Encode("\u1EC7"), ElementsAre(157, 119, 229));
    EXPECT_THAT(tokenizer->Encode("abc abc"), ElementsAre(256, 66, 220, 256, 66));
  }
  for (const auto& tokenizer : {absent, merging, ignoring}) {
    for (const char* text : {"abc", "abcab", " abc", "\u1EC7", "abc abc"}) {
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
    }
  }
}

TEST_F(TokenizerFile, KeepsBytesThatAreNotUtf8) {
  Json json = ByteLevelTokenizer(MergeVocabulary(), MergeStrings());
  json["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = Load(json);
  Random random(2);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (uint64_t n = random.Below(60); n > 0; --n) {
      text +=
          random.Below(3) == 0 ? static_cast<char>(random.Below(256)) : "abc \n'"[random.Below(6)];
    }
    // Composed forms would be other bytes: leave the second bytes of combining marks out.
    std::erase_if(text, [](char c) { return c == '\xCC' || c == '\xCD' || c == '\xD6'; });
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
}

TEST_F(TokenizerFile, ReadsTheIdsThatEndATextFromTheFilesBeside) {
  Json json = ByteLevelTokenizer(MergeVocabulary(), Json::array());
  json["added_tokens"] = Json::array({{{"id", 300}, {"content", "<end>"}, {"special", true}},
                                      {{"id", 301}, {"content", "<turn>"}, {"special", true}}});
  EXPECT_THAT(Load(json)->eos_ids(), IsEmpty());
  EXPECT_EQ(Load(json)->document_delimiter(), std::nullopt);
  WriteJson(folder_ / "tokenizer_config.json", {{"eos_token", "<turn>"}});
  EXPECT_THAT(Load(json)->eos_ids(), ElementsAre(301));
  WriteJson(folder_ / "config.json", {{"eos_token_id", 300}});
  EXPECT_THAT(Load(json)->eos_ids(), ElementsAre(300));
  WriteJson(folder_ / "generation_config.json", {{"eos_token_id", {301, 300, 5000}}});
  EXPECT_THAT(Load(json)->eos_ids(), ElementsAre(301, 300));
  EXPECT_EQ(Load(json)->document_delimiter(), 301);
  EXPECT_EQ(Load(json)->vocab_size(), 302);
  WriteJson(folder_ / "generation_config.json", {{"eos_token_id", "<turn>"}});
  EXPECT_THROW(Load(json), Error);
  WriteJson(folder_ / "generation_config.json", {{"eos_token_id", nullptr}});
  EXPECT_THAT(Load(json)->eos_ids(), ElementsAre(300));
  // What is saved elsewhere does not need those files.
  const TemporaryFolder other;
  Load(json)->Save(other.path());
  EXPECT_EQ(ReadFile(other / "tokenizer.json"), ReadFile(path_));
  EXPECT_THAT(LoadTokenizer(other.path())->eos_ids(), ElementsAre(301));
}

TEST_F(TokenizerFile, RefusesWhatItDoesNotUnderstand) {
  const Json good = ByteLevelTokenizer(MergeVocabulary(), MergeStrings());
  const auto with = [&good](const char* pointer, const Json& value) {
    Json changed = good;
    changed[Json::json_pointer(pointer)] = value;
    return changed;
  };
  EXPECT_EQ(Refusal(5), "expected an object, found 5");
  EXPECT_EQ(Refusal(Json::object()), "model: missing");
  EXPECT_EQ(Refusal(with("/model/type", "WordPiece")),
            "model.type: expected one of BPE, found \"WordPiece\"");
  EXPECT_EQ(Refusal(with("/model/vocab", Json::array())),
            "model.vocab: expected an object, found []");
  EXPECT_EQ(Refusal(with("/model/vocab/ab", "x")),
            "model.vocab.ab: expected an integer from 0 to 4194303, found \"x\"");
  for (const Json& id : {Json(-1), Json(1e300), Json(0.5), Json(1ull << 40), Json(1ull << 63)}) {
    EXPECT_THAT(Refusal(with("/model/vocab/ab", id)),
                HasSubstr("model.vocab.ab: expected an integer from 0 to 4194303, found "));
  }
  EXPECT_THAT(
      Refusal(with("/model/vocab/zz", 64)),
      AllOf(HasSubstr("model.vocab.zz: expected an id of its own, found 64"), HasSubstr("\"a\"")));
  EXPECT_EQ(Refusal(with("/model/merges", nullptr)), "model.merges: missing");
  EXPECT_EQ(Refusal(with("/model/dropout", 0.1)), "model.dropout: expected no dropout, found 0.1");
  EXPECT_EQ(Refusal(with("/model/ignore_merges", 1)),
            "model.ignore_merges: expected true or false, found 1");
  EXPECT_EQ(Refusal(with("/model/unk_token", "<unk>")),
            "model.unk_token: expected a token of the vocabulary, found \"<unk>\"");
  EXPECT_THAT(
      Refusal(with("/pre_tokenizer/type", "Whitespace")),
      HasSubstr(
          "pre_tokenizer.type: expected one of ByteLevel, Metaspace, Split, Sequence, found"));
  EXPECT_THAT(Refusal(with("/normalizer", {{"type", "NFKC"}})), HasSubstr("normalizer.type: "));
  EXPECT_THAT(Refusal(with("/decoder", {{"type", "WordPiece"}})), HasSubstr("decoder.type: "));
  EXPECT_THAT(Refusal(with("/post_processor", {{"type", "BertProcessing"}})),
              HasSubstr("post_processor.type: "));
  const Json splits = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "ByteLevel"}},
        {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}}}}};
  EXPECT_EQ(Refusal(with("/pre_tokenizer", splits)),
            "pre_tokenizer.pretokenizers[1]: expected nothing after ByteLevel");
  const Json broken = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(
      Refusal(with("/pre_tokenizer", broken)),
      HasSubstr("pre_tokenizer.pattern.Regex: expected a regular expression, found '(a': "));
  const auto added = [](int id, const char* content) {
    return Json::array({{{"id", id}, {"content", content}}});
  };
  EXPECT_THAT(Refusal(with("/added_tokens", added(64, "<new>"))),
              HasSubstr("added_tokens[0]: expected an id of its own for \"<new>\", found 64"));
  EXPECT_EQ(Refusal(with("/added_tokens", added(300, "ab"))),
            "added_tokens[0]: expected id 256 of \"ab\" in the vocabulary, found 300");
  EXPECT_THAT(Refusal(with("/added_tokens", added(300, std::string(2000, 'x').c_str()))),
              HasSubstr("added_tokens[0].content: expected at most 1024 bytes"));
}

TEST_F(TokenizerFile, RefusesWhatIsNotJson) {
  const auto message = [](const std::string& path) -> std::string {
    return test::MessageOf([&] { LoadTokenizer(path); });
  };
  EXPECT_THAT(message(folder_ / "missing.json"), HasSubstr("No such file"));
  EXPECT_THAT(message(folder_.path()), HasSubstr("tokenizer.json: cannot open"));
  for (const std::string& content :
       {std::string(), std::string("{\"model\": "), std::string("\xff\xfe"), std::string("[[[")}) {
    WriteFileAtomically(path_, content);
    EXPECT_THAT(message(path_), HasSubstr(path_ + ": not JSON: parse error at line 1, column "))
        << content;
  }
  WriteFileAtomically(path_, std::string(200000, '['));
  EXPECT_EQ(message(path_), path_ + ": JSON is nested deeper than 64 levels");
}

// Quadratic work would take hours here.
TEST_F(TokenizerFile, EncodesAWordOfTenMegabytes) {
  const auto tokenizer = Load(ByteLevelTokenizer(MergeVocabulary(), MergeStrings()));
  std::string text;
  while (text.size() < 10'000'000)
    text += "abcaabbabc";
  const std::vector<int32_t> ids = tokenizer->Encode(text);
  EXPECT_EQ(tokenizer->Decode(ids), text);
  EXPECT_EQ(ids.size(), 5'000'000u + 1'000'000u - 1'000'000u);
  for (const char* repeated : {" ", "\n", "'", "\u0301"}) {
    text.clear();
    while (text.size() < 3'000'000)
      text += repeated;
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
}

TEST_F(TokenizerFile, IsSafeToShareBetweenThreads) {
  const auto tokenizer = Load(ByteLevelTokenizer(MergeVocabulary(), MergeStrings()));
  std::string text;
  Random random(3);
  for (int i = 0; i < 20000; ++i)
    text += "abc \n"[random.Below(5)];
  const std::vector<int32_t> expected = tokenizer->Encode(text);
  std::vector<std::thread> threads;
  std::vector<std::vector<int32_t>> found(4);
  for (auto& ids : found) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i)
        ids = tokenizer->Encode(text);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& ids : found)
    EXPECT_EQ(ids, expected);
}

TEST_F(TokenizerFile, CutsWhereTheIdsDoNotChange) {
  Json json = ByteLevelTokenizer(MergeVocabulary(), MergeStrings());
  const auto tokenizer = Load(json);
  Random random(4);
  int cuts = 0;
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (uint64_t n = random.Below(80); n > 0; --n)
      text += "abc \n\n\t.'\r1"[random.Below(11)];
    const size_t from = random.Below(text.size() + 1);
    const size_t cut = tokenizer->FindCut(text, from);
    if (cut == std::string::npos) continue;
    ++cuts;
    ASSERT_GE(cut, from);
    ASSERT_LT(cut, text.size());
    std::vector<int32_t> ids;
    tokenizer->EncodeTo(text.substr(0, cut), ids);
    tokenizer->EncodeTo(text.substr(cut), ids);
    EXPECT_EQ(ids, tokenizer->Encode(text)) << text;
  }
  EXPECT_GT(cuts, 150);
  json["added_tokens"] = Json::array({{{"id", 300}, {"content", ".\na"}}});
  EXPECT_EQ(Load(json)->FindCut("a.\na.\na", 0), std::string::npos);
  EXPECT_EQ(LoadTokenizer("bytes")->FindCut("abc", 2), 2u);
}

// A SentencePiece-style file: vocabulary of the bytes, the mark of spaces and some words.
Json SentencePieceFile() {
  Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  int id = 259;
  for (const char* token : {"\u2581", "a", "b", "\u2581a", "ab", "\u2581ab", "\u2581\u2581"})
    vocabulary[token] = id++;
  return {{"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocabulary},
            {"merges", {"\u2581 a", "a b", "\u2581a b", "\u2581 \u2581"}}}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "\u2581"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"added_tokens", Json::array({{{"id", 2}, {"content", "</s>"}, {"special", true}}})}};
}

TEST_F(TokenizerFile, MarksSpacesAsSentencePieceDoes) {
  Json json = SentencePieceFile();
  const auto tokenizer = Load(json);
  EXPECT_THAT(tokenizer->Encode("ab a"), ElementsAre(264, 262));
  EXPECT_THAT(tokenizer->Encode("  ab"), ElementsAre(265, 264));
  EXPECT_THAT(tokenizer->Encode("\u00e9"), ElementsAre(259, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(tokenizer->Encode("a</s>a"), ElementsAre(262, 2, 262));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("ab  a\u00e9")), "ab  a\u00e9");
  // What goes on where a text ended gets no space.
  std::vector<int32_t> ids;
  tokenizer->EncodeContinuationTo("a b</s>a", ids);
  EXPECT_THAT(ids, ElementsAre(260, 259, 261, 2, 262));

  json.erase("normalizer");
  json["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\u2581"},
                           {"prepend_scheme", "first"},
                           {"split", false}};
  EXPECT_THAT(Load(json)->Encode("  ab a"), ElementsAre(259, 264, 262));
  EXPECT_THAT(Load(json)->Encode("a</s>a"), ElementsAre(262, 2, 260));
  ids.clear();
  Load(json)->EncodeContinuationTo("a", ids);
  EXPECT_THAT(ids, ElementsAre(260));
  json["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_THAT(Load(json)->Encode("a</s>a"), ElementsAre(262, 2, 262));
  json["model"]["merges"] = {"\u2581 \u2581", "\u2581 a", "a b", "\u2581a b"};
  EXPECT_THAT(Load(json)->Encode("   a"), ElementsAre(265, 262));
  json["pre_tokenizer"]["split"] = true;
  EXPECT_THAT(Load(json)->Encode("   a"), ElementsAre(259, 259, 262));
  json["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_THAT(Load(json)->Encode("a a"), ElementsAre(260, 262));
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"add_prefix_space", false}};
  EXPECT_THAT(Load(json)->Encode("a a"), ElementsAre(260, 262));
  json["pre_tokenizer"]["prepend_scheme"] = "first";
  EXPECT_EQ(Refusal(json),
            "pre_tokenizer.prepend_scheme: expected \"never\", since add_prefix_space is false, "
            "found \"first\"");
  json["pre_tokenizer"]["replacement"] = "__";
  EXPECT_EQ(Refusal(json), "pre_tokenizer.replacement: expected one character, found \"__\"");
}

// A rule that joins two words: the text cannot be encoded word by word.
TEST_F(TokenizerFile, MayMergeAcrossSpaces) {
  Json json = SentencePieceFile();
  json["model"]["vocab"]["b\u2581"] = 266;
  json["model"]["vocab"]["b\u2581a"] = 267;
  json["model"]["merges"] = {"b \u2581", "b\u2581 a", "\u2581 a"};
  EXPECT_THAT(Load(json)->Encode("ab ab"), ElementsAre(262, 267, 261));
}

TEST_F(TokenizerFile, DecodersStandInAnOrder) {
  Json json = SentencePieceFile();
  Json& parts = json["decoder"]["decoders"];
  std::swap(parts[0], parts[1]);
  EXPECT_EQ(Refusal(json), "decoder.decoders[1]: expected Replace before ByteFallback");
  std::swap(parts[0], parts[1]);
  std::swap(parts[2], parts[3]);
  EXPECT_EQ(Refusal(json), "decoder.decoders[2]: expected Fuse before Strip");
  std::swap(parts[2], parts[3]);
  std::swap(parts[1], parts[2]);
  EXPECT_EQ(Refusal(json), "decoder.decoders[2]: expected ByteFallback before Fuse");
  json["decoder"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}};
  EXPECT_EQ(Load(json)->Decode(std::vector<int32_t>{262, 262}), "a a");
}

TEST_F(TokenizerFile, StripsAsOftenAsItMay) {
  Json json = SentencePieceFile();
  json["decoder"]["decoders"][3]["start"] = 3;
  const auto tokenizer = Load(json);
  StreamingDecoder decoder(tokenizer);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{265, 262, 262}), "a a");
  EXPECT_EQ(decoder.Push(265), "");
  EXPECT_EQ(decoder.Push(262), "a");
  EXPECT_EQ(decoder.Push(262), " a");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{265, 265, 260}), " a");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{262}), "a");
}

TEST_F(TokenizerFile, StreamsFallbackBytesAsCharacters) {
  const auto tokenizer = Load(SentencePieceFile());
  std::vector<std::string> parts;
  StreamingDecoder decoder(tokenizer);
  for (const int32_t id : tokenizer->Encode(" a\u4f60b"))
    parts.push_back(decoder.Push(id));
  EXPECT_THAT(parts, ElementsAre("", " a", "", "", "\u4f60", "b"));
  EXPECT_EQ(decoder.Push(3 + 0xE4), "");
  EXPECT_EQ(decoder.Push(262), "\uFFFD a");
  EXPECT_EQ(decoder.Push(3 + 0xE4), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  // A new text.
  EXPECT_EQ(decoder.Push(262), "a");
  StreamingDecoder continuation(tokenizer, /*skip_special_tokens=*/true, /*is_continuation=*/true);
  EXPECT_EQ(continuation.Push(262), " a");
}

TEST(StreamingDecoder, NeverEmitsHalfACharacter) {
  const auto bytes = LoadTokenizer("bytes");
  const std::string text = "a\u00e9\u4f60\U0001f600z";
  StreamingDecoder decoder(bytes);
  std::vector<std::string> parts;
  std::string all;
  for (const int32_t id : bytes->Encode(text))
    parts.push_back(decoder.Push(id));
  EXPECT_THAT(parts,
              ElementsAre("a", "", "\u00e9", "", "", "\u4f60", "", "", "", "\U0001f600", "z"));
  EXPECT_EQ(decoder.Finish(), "");
  EXPECT_EQ(decoder.Push(256), "");
  StreamingDecoder with_special(bytes, /*skip_special_tokens=*/false);
  EXPECT_EQ(with_special.Push(256), "<|endoftext|>");
}

TEST(StreamingDecoder, ReplacesBrokenCharacters) {
  const auto bytes = LoadTokenizer("bytes");
  const auto decode = [&](const std::string& text) {
    StreamingDecoder decoder(bytes);
    std::string result;
    for (const int32_t id : bytes->Encode(text))
      result += decoder.Push(id);
    return result + decoder.Finish();
  };
  // The examples of The Unicode Standard, section 3.9, and what Python's decoder gives.
  EXPECT_EQ(decode("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(decode("\xE2\x82"
                   "A"),
            "\uFFFDA");
  EXPECT_EQ(decode("\xF0\x80\x80\x41"), "\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(decode("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(decode("\xF1\x80\x80\xE1\x80\xC0"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(decode("\xFF"), "\uFFFD");
  EXPECT_EQ(decode("\x80\x80x"), "\uFFFD\uFFFDx");
}

}  // namespace
}  // namespace infini_train
