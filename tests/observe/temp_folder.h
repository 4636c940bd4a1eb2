// A folder of its own for a test, gone afterwards.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "paceline/base/files.h"

namespace paceline::observe {

class TempFolderTest : public testing::Test {
 protected:
  TempFolderTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::path(testing::TempDir()) / (std::string("paceline_") + info->test_suite_name() + "_" + info->name());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  ~TempFolderTest() override { std::filesystem::remove_all(folder); }

  std::filesystem::path folder;
};

}  // namespace paceline::observe
