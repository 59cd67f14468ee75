#include "infini_train/core/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "infini_train/core/error.h"
#include "tests/common/temporary_folder.h"
#include "tests/core/child_process.h"

namespace infini_train {
namespace {

namespace fs = std::filesystem;

class File : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  int64_t NumFiles() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(File, RoundTripsContentLargerThanItsBuffer) {
  std::string content(3'000'001, '\0');
  for (size_t i = 0; i < content.size(); ++i)
    content[i] = static_cast<char>(i * 31 >> 3);
  AtomicFile file(Path("a"));
  for (size_t begin = 0, size = 1; begin < content.size(); begin += size, size = size * 3 + 1) {
    file.Write(std::string_view(content).substr(begin, size));
  }
  EXPECT_EQ(file.size(), 3'000'001);
  file.Commit();
  EXPECT_EQ(ReadFile(Path("a")), content);
  MappedFile mapped(Path("a"));
  const MappedFile moved = std::move(mapped);
  EXPECT_EQ(moved.text(), content);
}

TEST_F(File, OverwritesBytesWrittenBefore) {
  AtomicFile file(Path("a"));
  file.Write("0123456789");
  file.Overwrite(2, std::as_bytes(std::span("ab", 2)));
  file.Write("x");
  EXPECT_THROW(file.Overwrite(10, std::as_bytes(std::span("ab", 2))), Error);
  EXPECT_THROW(file.Overwrite(-1, std::as_bytes(std::span("ab", 2))), Error);
  file.Commit();
  EXPECT_EQ(ReadFile(Path("a")), "01ab456789x");
}

TEST_F(File, AppearsOnlyWhenCommitted) {
  WriteFileAtomically(Path("a"), "old");
  {
    AtomicFile file(Path("a"));
    file.Write("new");
    EXPECT_EQ(ReadFile(Path("a")), "old");
  }
  EXPECT_EQ(ReadFile(Path("a")), "old");
  EXPECT_EQ(NumFiles(), 1) << "a temporary file was left behind";
  WriteFileAtomically(Path("a"), "new");
  EXPECT_EQ(ReadFile(Path("a")), "new");
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(File, KeepsTheOldFileWhenItCannotBeReplaced) {
  fs::create_directories(folder_ / "a" / "inside");
  EXPECT_THROW(WriteFileAtomically(Path("a"), "new"), Error);
  EXPECT_TRUE(fs::is_directory(folder_ / "a"));
  EXPECT_EQ(NumFiles(), 1) << "a temporary file was left behind";
}

TEST_F(File, SaysWhatIsWrong) {
  EXPECT_THROW(
      {
        try {
          MappedFile file(Path("missing"));
        } catch (const Error& error) {
          EXPECT_EQ(error.what(), Path("missing") + ": cannot open: No such file or directory");
          throw;
        }
      },
      Error);
  EXPECT_THROW(MappedFile(folder_.string()), Error);
  EXPECT_THROW(AtomicFile(Path("missing/a")), Error);
  WriteFileAtomically(Path("empty"), "");
  EXPECT_TRUE(MappedFile(Path("empty")).bytes().empty());
}

TEST_F(File, ReportsAFullDisk) {
  WriteFileAtomically(Path("a"), "old");
  // A limit on the size of files fails writes as a full disk does.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 1 << 16;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THROW(WriteFileAtomically(Path("a"), std::string(1 << 22, 'x')), Error);
  EXPECT_THROW(WriteFileAtomically(Path("a"), std::string(1 << 17, 'x')), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(ReadFile(Path("a")), "old");
  EXPECT_EQ(NumFiles(), 1) << "a temporary file was left behind";
}

TEST_F(File, SurvivesAKillAtAnyMoment) {
  WriteFileAtomically(Path("a"), "old");
  for (const bool committing : {false, true}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      AtomicFile file(Path("a"));
      file.Write(std::string(3 << 20, 'n'));
      if (committing) file.Commit();
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(ReadFile(Path("a")), committing ? std::string(3 << 20, 'n') : "old");
  }
}

TEST_F(File, FoldersAreMadeWithThoseAboveThem) {
  EXPECT_FALSE(PathExists(Path("x")));
  CreateFolder(Path("x/y"));
  CreateFolder(Path("x/y"));
  EXPECT_TRUE(PathExists(Path("x")));
  EXPECT_TRUE(IsFolder(Path("x/y")));
  WriteFileAtomically(Path("a"), "");
  EXPECT_TRUE(PathExists(Path("a")));
  EXPECT_FALSE(IsFolder(Path("a")));
  EXPECT_FALSE(PathExists(Path("a/b")));
  EXPECT_ERROR(CreateFolder(Path("a/b")), Path("a/b") + ": cannot create the folder: Not a dir");
}

TEST_F(File, BeginWithANumber) {
  const int32_t number = -20240520;
  const std::string bytes(reinterpret_cast<const char*>(&number), sizeof(number));
  WriteFileAtomically(Path("a"), bytes + "more");
  EXPECT_EQ(LeadingInt32(Path("a")), number);
  WriteFileAtomically(Path("a"), bytes.substr(1));
  EXPECT_EQ(LeadingInt32(Path("a")), std::nullopt);
  EXPECT_EQ(LeadingInt32(Path("missing")), std::nullopt);
  EXPECT_EQ(LeadingInt32(folder_), std::nullopt);
}

TEST_F(File, AreListedByName) {
  for (const char* name : {"b", "a", "c/inside"}) {
    CreateFolder(fs::path(Path(name)).parent_path());
    WriteFileAtomically(Path(name), "");
  }
  EXPECT_THAT(ListFolder(folder_),
              ::testing::ElementsAre(folder_ / "a", folder_ / "b", folder_ / "c"));
  EXPECT_TRUE(ListFolder(Path("missing")).empty());
  EXPECT_TRUE(ListFolder(Path("a")).empty());
  fs::permissions(folder_, static_cast<fs::perms>(0300));
  test::InChildProcess([&] {
    // The superuser may read everywhere.
    if (::geteuid() == 0) {
      ASSERT_EQ(::seteuid(65534), 0);
    }
    EXPECT_ERROR(ListFolder(folder_), folder_.string() + ": cannot list the folder: Permission");
  });
  fs::permissions(folder_, static_cast<fs::perms>(0755));
}

TEST_F(File, ReportsAReadOnlyFolder) {
  WriteFileAtomically(Path("a"), "old");
  fs::permissions(folder_, static_cast<fs::perms>(0555));
  test::InChildProcess([&] {
    // The superuser may write everywhere.
    if (::geteuid() == 0) {
      ASSERT_EQ(::seteuid(65534), 0);
    }
    EXPECT_ERROR(WriteFileAtomically(Path("a"), "new"),
                 Path("a") + ": cannot write: Permission denied");
    EXPECT_EQ(ReadFile(Path("a")), "old");
  });
  fs::permissions(folder_, static_cast<fs::perms>(0755));
  EXPECT_EQ(NumFiles(), 1);
}

}  // namespace
}  // namespace infini_train
