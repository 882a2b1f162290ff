#include "egt/core/text.hpp"

#include <gtest/gtest.h>

namespace egt {
namespace {

TEST(Text, PrintableIsOneLine) {
  EXPECT_EQ(printable("a\x01\x1b[31m\n\t\x7f\r" + std::string(1, '\0') + "z"), "a??[31m?????z");
  EXPECT_EQ(printable("gr\xc3\xb6\xc3\x9f"
                      "e \xff\xc3",
                      ' '),
            "gr\xc3\xb6\xc3\x9f"
            "e \xff\xc3")
      << "bytes stay";
  EXPECT_EQ(printable("torn\nline", ' '), "torn line");
}

TEST(Text, OfFilesIsPlain) {
  EXPECT_EQ(plain_text("plain, \xc3\xa4\n\t"), "plain, \xc3\xa4\n\t");
  const std::string none = "\xef\xbf\xbd";
  EXPECT_EQ(plain_text("a\x01\x1b\x7f\r" + std::string(1, '\0') + "b"),
            "a" + none + none + none + none + none + "b");
  EXPECT_EQ(plain_text("a\xff\xc0\xaf z"), "a" + none + none + none + " z") << "not UTF-8, overlong";
  EXPECT_EQ(plain_text("\xef\xbf\xbe|\xef\xbf\xbf|\xef\xbf\xbd"), none + "|" + none + "|" + none);
  EXPECT_EQ(plain_text("torn \xc3"), "torn " + none);
}

TEST(Text, OfXmlAndLabelsIsEscaped) {
  EXPECT_EQ(xml_text("<a>&\"]]>\n"), "&lt;a&gt;&amp;\"]]&gt;\n");
  EXPECT_EQ(xml_attribute("<a>&\"\n\t"), "&lt;a&gt;&amp;&quot;&#10;&#9;");
  EXPECT_EQ(label_text("a\\\"b\nc"), "a\\\\\\\"b\\nc");
}

TEST(Text, OfHtmlIsTextWhateverItHolds) {
  EXPECT_EQ(html_text("<img src=x onerror=alert(1)>"), "&lt;img src=x onerror=alert(1)&gt;");
  EXPECT_EQ(html_text("a \"b\" 'c' & d"), "a &quot;b&quot; &#39;c&#39; &amp; d");
  EXPECT_EQ(html_text("bytes \xff\xc3 and \x1b[31m"), "bytes \xef\xbf\xbd\xef\xbf\xbd and ?[31m");
  EXPECT_EQ(html_text("größe 5 °C"), "größe 5 °C");
}

}  // namespace
}  // namespace egt
