// A folder of its own for a test, gone afterwards.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "paceline/base/files.h"
#include "paceline/base/temporary_folder.h"

namespace paceline::observe {

class TempFolderTest : public testing::Test {
 protected:
  const TemporaryFolder own;
  const std::filesystem::path folder = own.path();
};

}  // namespace paceline::observe
