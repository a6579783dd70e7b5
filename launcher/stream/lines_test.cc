#include "launcher/stream/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Pieces = std::vector<Piece>;

Pieces add(LineCutter& cutter, std::string_view bytes) {
  Pieces pieces;
  cutter.add(bytes, pieces);
  return pieces;
}
Pieces flush(LineCutter& cutter) {
  Pieces pieces;
  cutter.flush_silent(pieces);
  return pieces;
}
Pieces finish(LineCutter& cutter) {
  Pieces pieces;
  cutter.finish(pieces);
  return pieces;
}

TEST(LineCutter, KeepsAnUnfinishedLineUntilItIsFinished) {
  LineCutter cutter;
  EXPECT_THAT(add(cutter, "one\ntwo\nthr"), ElementsAre(Piece{"one\n"}, Piece{"two\n"}));
  EXPECT_TRUE(cutter.has_unfinished());
  EXPECT_THAT(add(cutter, "ee\n"), ElementsAre(Piece{"three\n"}));
  EXPECT_FALSE(cutter.has_unfinished());
}

TEST(LineCutter, EndsALineAtACarriageReturnToo) {
  LineCutter cutter;
  EXPECT_THAT(add(cutter, "10%\r20%\r30%\n"),
              ElementsAre(Piece{"10%\r"}, Piece{"20%\r"}, Piece{"30%\n"}));
}

TEST(LineCutter, TakesCarriageReturnAndNewlineAsOneEndAcrossABorder) {
  LineCutter cutter;
  EXPECT_THAT(add(cutter, "a\r\nb\r"), ElementsAre(Piece{"a\r\n"}));
  EXPECT_THAT(add(cutter, "\nc\r"), ElementsAre(Piece{"b\r\n"}));
  EXPECT_THAT(flush(cutter), ElementsAre(Piece{"c\r"}));
}

TEST(LineCutter, CutsAlikeWhateverTheBorders) {
  const std::string text = "a\n\nb\r\r\nc\r\r\r\n\nlast\r";
  LineCutter at_once;
  Pieces expected = add(at_once, text);
  for (const Piece& piece : finish(at_once)) expected.push_back(piece);
  for (size_t border = 1; border < text.size(); ++border) {
    LineCutter cutter;
    Pieces found = add(cutter, text.substr(0, border));
    for (const Piece& piece : add(cutter, text.substr(border))) found.push_back(piece);
    for (const Piece& piece : finish(cutter)) found.push_back(piece);
    EXPECT_EQ(found, expected) << border;
  }
}

TEST(LineCutter, FlushesAnUnfinishedLineInParts) {
  LineCutter cutter;
  add(cutter, "name");
  EXPECT_THAT(flush(cutter), ElementsAre(Piece{"name", true, false}));
  EXPECT_THAT(flush(cutter), IsEmpty());
  EXPECT_THAT(add(cutter, "?\n"), ElementsAre(Piece{"?\n", false, true}));
  EXPECT_THAT(add(cutter, "next\n"), ElementsAre(Piece{"next\n"}));
}

TEST(LineCutter, NeverFlushesHalfACharacter) {
  const std::string text = "a\u00e9\u20ac\U0001F600";  // 1, 2, 3 and 4 bytes
  for (size_t cut = 1; cut <= text.size(); ++cut) {
    LineCutter cutter;
    add(cutter, text.substr(0, cut));
    std::string whole;
    for (const Piece& piece : flush(cutter)) whole += piece.text;
    EXPECT_THAT(whole, ::testing::AnyOf("a", "a\u00e9", "a\u00e9\u20ac", text)) << cut;
    add(cutter, text.substr(cut));
    for (const Piece& piece : finish(cutter)) whole += piece.text;
    EXPECT_EQ(whole, text + "\n");
  }
}

TEST(LineCutter, FlushesBytesThatAreNoText) {
  LineCutter cutter;
  add(cutter, "\xff\xff\xff\xff\xff");
  Pieces pieces = flush(cutter);
  for (const Piece& piece : finish(cutter)) pieces.push_back(piece);
  std::string all;
  for (const Piece& piece : pieces) all += piece.text;
  EXPECT_EQ(all, "\xff\xff\xff\xff\xff\n");
}

TEST(LineCutter, EndsAnUnfinishedLastLine) {
  LineCutter cutter;
  add(cutter, "end");
  EXPECT_THAT(finish(cutter), ElementsAre(Piece{"end\n"}));
  LineCutter flushed;
  add(flushed, "end");
  flush(flushed);
  EXPECT_THAT(finish(flushed), ElementsAre(Piece{"\n", false, true}));
  LineCutter empty;
  EXPECT_THAT(finish(empty), IsEmpty());
}

TEST(LineCutter, PassesAVeryLongLineOnInParts) {
  LineCutter cutter;
  const std::string half(LineCutter::kLimit / 2, 'x');
  EXPECT_THAT(add(cutter, half), IsEmpty());
  EXPECT_THAT(add(cutter, half), ElementsAre(Piece{half + half, true, false}));
  EXPECT_THAT(add(cutter, "end\n"), ElementsAre(Piece{"end\n", false, true}));
}

TEST(ConsoleLines, PutsThePrefixBeforeEveryLine) {
  ConsoleLines console;
  std::string out;
  console.write(0, {"a\n"}, "[0]:", out);
  console.write(1, {"b\r"}, "[1]:", out);
  EXPECT_EQ(out, "[0]:a\n[1]:b\r");
}

TEST(ConsoleLines, ContinuesAnUnfinishedLineWithoutAPrefix) {
  ConsoleLines console;
  std::string out;
  console.write(0, {"na", true, false}, "[0]:", out);
  console.write(0, {"me\n", false, true}, "[0]:", out);
  EXPECT_EQ(out, "[0]:name\n");
}

TEST(ConsoleLines, BreaksALineOffWhenAnotherSourceWrites) {
  ConsoleLines console;
  std::string out;
  console.write(0, {"na", true, false}, "[0]:", out);
  console.write(1, {"x\n"}, "[1]:", out);
  console.write(0, {"me\n", false, true}, "[0]:", out);
  EXPECT_EQ(out, "[0]:na\n[1]:x\n[0]:me\n");
}

TEST(Tail, KeepsTheLastLinesWithoutTheirEnds) {
  Tail tail;
  for (int i = 0; i < 100; ++i) tail.add({std::to_string(i) + "\r\n"});
  const auto lines = tail.lines();
  ASSERT_EQ(lines.size(), Tail::kLines);
  EXPECT_EQ(lines.front(), "80");
  EXPECT_EQ(lines.back(), "99");
}

TEST(Tail, JoinsPartsOfALineAndCutsLongOnes) {
  Tail tail;
  tail.add({"na", true, false});
  tail.add({"me\n", false, true});
  tail.add({std::string(10000, 'x') + "\n"});
  EXPECT_THAT(tail.lines(), ElementsAre("name", std::string(Tail::kLineBytes, 'x')));
}

}  // namespace
}  // namespace hvd::launcher
