#pragma once

#include <string>
#include <string_view>

/// Text from records (names of hosts, devices and files, words of other programs) for pages and for files
/// that other programs read.
namespace egt {

/// Text of an element or of a quoted attribute of HTML; what is no UTF-8, and control characters, are
/// replaced.
std::string escaped(std::string_view text);

/// Valid UTF-8 without control characters but tab and newline, and without U+FFFE and U+FFFF, which XML
/// forbids: U+FFFD stands for all of them.
std::string plain_text(std::string_view text);

/// `plain_text` for an element of XML.
std::string xml_text(std::string_view text);
/// And for an attribute in double quotes, where readers else make spaces of tabs and newlines.
std::string xml_attribute(std::string_view text);

/// `plain_text` for the value of a label of Prometheus' text format, in double quotes.
std::string label_text(std::string_view text);

}  // namespace egt
