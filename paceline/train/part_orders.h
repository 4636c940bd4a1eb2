// The orders that the leader of a run gives to another process that holds part of its state, and the answers, as texts of any bytes: CBOR,
// because a path is not always UTF-8.
#pragma once

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"

namespace paceline::train::orders {

using Json = nlohmann::json;

/// What to do; the other entries of an order, and the answer.
inline constexpr const char* kReport = "report";    // → held: the report of holdings.h; not_finite: a parameter, or ""
inline constexpr const char* kHash = "hash";        // hash, items: texts, or numbers of tensors in the report → hash, continued with them
inline constexpr const char* kRead = "read";        // item → bytes: its values
inline constexpr const char* kWrite = "write";      // file → nothing; it is written in the background
inline constexpr const char* kOutcome = "outcome";  // file → done, bytes, problem

inline std::string pack(const Json& json) {
  std::string text;
  Json::to_cbor(json, text);
  return text;
}
inline Json unpack(std::string_view text) { return Json::from_cbor(text.begin(), text.end()); }

/// A hash with its state, so that another process can continue it.
inline std::string pack_hash(const ContentHash& hash) {
  static_assert(std::is_trivially_copyable_v<ContentHash>);
  return {reinterpret_cast<const char*>(&hash), sizeof hash};
}
inline ContentHash unpack_hash(const std::string& text) {
  ContentHash hash;
  if (text.size() != sizeof hash) throw DataError("an order about a checkpoint", "its hash has another size");
  std::memcpy(static_cast<void*>(&hash), text.data(), sizeof hash);
  return hash;
}

}  // namespace paceline::train::orders
