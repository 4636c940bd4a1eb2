// How flags are shown in help texts and man pages, and which values shells complete after them: plain words, from what CLI11 knows of a
// flag.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace paceline::program {

/// Words for a flag's value, passed to type_name(). After these, shells complete the names of files.
inline constexpr const char *kFile = "FILE", *kFolder = "FOLDER", *kNameOrFile = "NAME|FILE", *kFolderOrFile = "FOLDER|FILE";
/// Several values in one word, separated by commas.
inline constexpr const char *kNameList = "NAME,...", *kNumberList = "NUMBER,...", *kMesh = "AXIS=N,...";
inline constexpr const char* kTime = "TIME";

/// Values that a flag accepts. They are shown and completed, not checked: the code that reads the flag refuses others.
CLI::Validator known_values(const std::vector<std::string>& values);

/// The values that an option accepts; empty if they are not known.
std::vector<std::string> values_of(const CLI::Option& option);
/// "FILE", "NUMBER", "weak|strong|both"; empty for a flag without a value.
std::string value_word(const CLI::Option& option);
/// Its description; after it, in brackets, its range, its default, and the flags that it needs or excludes.
std::string described(const CLI::Option& option);
/// "-n,-np,--workers", or the name of an argument.
std::string names_of(const CLI::Option& option);

/// Makes the program and the subcommands that are added later print help in this form.
void use_plain_help(CLI::App& app);

}  // namespace paceline::program
