#include "infini_train/core/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "tests/common/temporary_folder.h"
#include "tests/core/child_process.h"

namespace infini_train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

/// Written by NumPy: np.arange(6).reshape(2, 3), scaled or shifted to suit the type.
std::string Golden(const std::string& name) {
  return std::string(INFINI_TRAIN_TEST_DATA) + "/" + name + ".npy";
}

/// A version 1.0 file with this header and data.
std::string File(const std::string& header, const std::string& data = "") {
  std::string file("\x93NUMPY\x01\x00", 8);
  file.push_back(static_cast<char>(header.size() & 0xFF));
  file.push_back(static_cast<char>(header.size() >> 8));
  return file + header + data;
}

Tensor Parse(const std::string& content) {
  return ParseNpy(std::as_bytes(std::span(content)), "x.npy");
}

class Npy : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ / name; }

  const test::TemporaryFolder folder_;
};

TEST_F(Npy, ReadsWhatNumPyWrites) {
  const Tensor f4 = LoadNpy(Golden("f4"));
  EXPECT_EQ(f4.shape(), Dims({2, 3}));
  EXPECT_THAT(f4.ToVector<float>(), ElementsAre(0, 0.25f, 0.5f, 0.75f, 1, 1.25f));
  const Tensor f8 = LoadNpy(Golden("f8_fortran"));
  EXPECT_EQ(f8.shape(), Dims({2, 3}));
  EXPECT_TRUE(f8.IsContiguous());
  EXPECT_THAT(f8.ToVector<double>(), ElementsAre(0, 0.25, 0.5, 0.75, 1, 1.25));
  EXPECT_EQ(static_cast<float>(LoadNpy(Golden("f2")).ToVector<Float16>()[5]), 1.25f);
  EXPECT_THAT(LoadNpy(Golden("i4_big_endian")).ToVector<std::int32_t>(),
              ElementsAre(-3, -2, -1, 0, 1, 2));
  EXPECT_THAT(LoadNpy(Golden("i8")).ToVector<std::int64_t>(), ElementsAre(-3, -2, -1, 0, 1, 2));
  EXPECT_THAT(LoadNpy(Golden("u1")).ToVector<std::uint8_t>(),
              ElementsAre(250, 251, 252, 253, 254, 255));
  EXPECT_THAT(LoadNpy(Golden("u2")).ToVector<std::uint16_t>(),
              ElementsAre(65530, 65531, 65532, 65533, 65534, 65535));
  const Tensor flags = LoadNpy(Golden("bool"));
  EXPECT_FALSE(flags.data<bool>()[0]);
  EXPECT_TRUE(flags.data<bool>()[5]);
  EXPECT_EQ(LoadNpy(Golden("scalar")).Item(), 2.5);
  EXPECT_EQ(LoadNpy(Golden("scalar")).rank(), 0);
  const Tensor empty = LoadNpy(Golden("empty_fortran"));
  EXPECT_EQ(empty.shape(), Dims({2, 0, 3}));
  EXPECT_TRUE(empty.IsContiguous());
  for (const char* name : {"version2", "version3"}) {
    EXPECT_THAT(LoadNpy(Golden(name)).ToVector<std::int32_t>(), ElementsAre(0, 1, 2, 3, 4, 5));
  }
  EXPECT_ERROR(LoadNpy(Golden("int8")), "found NumPy type '|i1'");
  EXPECT_ERROR(LoadNpy(Golden("record")), "record.npy: expected elements of");
}

TEST_F(Npy, WritesWhatNumPyWrites) {
  for (const char* name : {"f4", "f2", "i8", "u1", "u2", "bool", "scalar"}) {
    SaveNpy(Path("a.npy"), LoadNpy(Golden(name)));
    EXPECT_EQ(ReadFile(Path("a.npy")), ReadFile(Golden(name))) << name;
  }
}

TEST_F(Npy, RoundTripsEveryTypeAndShape) {
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto dtype = static_cast<DataType>(i);
    for (const Dims& shape : {Dims{}, Dims{1}, Dims{7}, Dims{3, 5}, Dims{2, 0}, Dims{2, 3, 4},
                              Dims{1, 1, 1, 1, 1, 1, 1, 2}}) {
      const Tensor tensor = Tensor::Empty(shape, dtype);
      std::vector<std::uint8_t> bytes(tensor.nbytes());
      std::iota(bytes.begin(), bytes.end(), 1);
      if (dtype == DataType::kBool) std::fill(bytes.begin(), bytes.end(), 1);
      tensor.CopyFromHost(bytes.data(), bytes.size());
      SaveNpy(Path("a.npy"), tensor);
      EXPECT_EQ(fs::file_size(Path("a.npy")) % 64,
                (dtype == DataType::kBFloat16 ? 2 : 1) * tensor.nbytes() % 64);
      const Tensor loaded = LoadNpy(Path("a.npy"));
      EXPECT_EQ(loaded.shape(), shape);
      if (dtype == DataType::kBFloat16) {
        EXPECT_EQ(loaded.dtype(), DataType::kFloat32);
        const auto narrow = tensor.ToVector<BFloat16>();
        const auto wide = loaded.ToVector<float>();
        for (std::size_t k = 0; k < wide.size(); ++k)
          EXPECT_EQ(wide[k], static_cast<float>(narrow[k]));
      } else {
        EXPECT_EQ(loaded.dtype(), dtype);
        std::vector<std::uint8_t> loaded_bytes(loaded.nbytes());
        loaded.CopyToHost(loaded_bytes.data());
        EXPECT_EQ(loaded_bytes, bytes);
      }
    }
  }
}

TEST_F(Npy, WritesViewsInRowMajorOrder) {
  const Tensor tensor = LoadNpy(Golden("i8"));
  SaveNpy(Path("a.npy"), tensor.AsStrided({3, 2}, {1, 3}, 0));
  EXPECT_THAT(LoadNpy(Path("a.npy")).ToVector<std::int64_t>(), ElementsAre(-3, 0, -2, 1, -1, 2));
}

TEST_F(Npy, TakesAnyOrderAndLayoutOfTheHeader) {
  EXPECT_EQ(Parse(File("{'shape':(2,),\"fortran_order\" : False,'descr':'|u1'}\n", "ab")).numel(),
            2);
  EXPECT_EQ(Parse(File("{'descr': '=u2', 'fortran_order': True, 'shape': (1, 2)}", "abcd")).numel(),
            2);
}

TEST_F(Npy, TakesAnyByteButZeroForTrue) {
  const Tensor flags = Parse(
      File("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", std::string("\0\2\xff", 3)));
  std::vector<std::uint8_t> bytes(3);
  flags.CopyToHost(bytes.data());
  EXPECT_THAT(bytes, ElementsAre(0, 1, 1));
}

TEST_F(Npy, RefusesHostileFiles) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  EXPECT_ERROR(Parse(""), "x.npy: expected a .npy file, found 0 bytes");
  EXPECT_ERROR(Parse("\x93NUMPY"), "found 6 bytes");
  EXPECT_ERROR(Parse(std::string("PK\x03\x04 zip file")), "expected a .npy file");
  EXPECT_ERROR(Parse(std::string("\x93NUMPY\x04\x00\x00\x00", 10)), "found 4.0");
  EXPECT_ERROR(Parse(std::string("\x93NUMPY\x01\x01\x00\x00", 10)), "found 1.1");
  EXPECT_ERROR(Parse(std::string("\x93NUMPY\x01\x00\x10", 9)), "truncated");
  EXPECT_ERROR(Parse(std::string("\x93NUMPY\x01\x00\xff\xff{}", 12)), "65535 bytes announced");
  EXPECT_ERROR(Parse(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14)), "4294967295");
  EXPECT_ERROR(Parse(File(good, "1234567")),
               "expected 2 elements of float32 for shape [2], found 7");
  EXPECT_ERROR(Parse(File(good, "123456789012")), "found 12 bytes");
  EXPECT_ERROR(Parse(File(good + "x", "12345678")), "nothing else");
  for (const std::string header :
       {"", "{", "{}", "[]", "{'descr'", "{'descr': '<f4'}", "{'descr': <f4, }",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': false, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}"}) {
    EXPECT_ERROR(Parse(File(header)), "x.npy: malformed .npy header at character ");
  }
  for (const std::string descr : {"<f4 ", "f4", "<c8", "|O", "<U4", "<f16", "", "|S1", "<m8[ns]"}) {
    EXPECT_ERROR(Parse(File("{'descr': '" + descr + "', 'fortran_order': False, 'shape': ()}")),
                 "found NumPy type '" + descr + "'");
  }
  EXPECT_ERROR(Parse(File("{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (9223372036854775807, 9223372036854775807)}")),
               "x.npy: shape [9223372036854775807, 9223372036854775807] has too many elements");
  EXPECT_ERROR(Parse(File("{'descr': '<f4', 'fortran_order': False, "
                          "'shape': (0, 4611686018427387904, 4)}")),
               "x.npy: shape [0, 4611686018427387904, 4] has too many elements");
  EXPECT_ERROR(Parse(File("{'descr': '<f8', 'fortran_order': False, "
                          "'shape': (2305843009213693952,)}")),
               "expected 2305843009213693952 elements of float64");
  EXPECT_ERROR(LoadNpy(Path("missing.npy")), "missing.npy: cannot open");
  EXPECT_ERROR(SaveNpy(Path("no/folder.npy"), LoadNpy(Golden("f4"))), "folder.npy: cannot");
}

TEST_F(Npy, SurvivesEveryTruncationAndFlippedBit) {
  const std::string golden = ReadFile(Golden("i8"));
  for (std::size_t length = 0; length < golden.size(); ++length) {
    EXPECT_THROW(Parse(golden.substr(0, length)), Error) << length;
  }
  for (std::size_t bit = 0; bit < 8 * golden.size(); ++bit) {
    std::string damaged = golden;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    try {
      Parse(damaged);
    } catch (const Error&) {
      // Either an Error or a tensor: nothing else may happen.
    }
  }
}

}  // namespace
}  // namespace infini_train
