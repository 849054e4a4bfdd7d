// An ordered set next to older consumers, which send the statement of the classic description and
// do not compare `_wm`. Members that a collection has passed are marked, and the store refuses
// members at or below `_wm` without a mark. Two names. See README.md.
#include "mc.hpp"
#include <algorithm>
enum Mut : u32 { M_NO_VALIDATOR = 1, M_NO_PASS = 2, M_ONE_PASS = 4, M_VALIDATOR_FIRST = 8, M_NO_MARKS = 16, M_NOT_TOLD = 32 };
struct Msg { u8 add, seq; }; // add 2: of another name, which is not removed
struct Doc { u8 member, mark, tomb, wm, other, omark; }; // numbers; 0: none
struct Col { u8 pc, w, marks; };
struct S { Doc d; u8 rec, acked, told, installed, midst, refused, gone, back, collected, old, dec; Col k[2]; };
struct P {
  typedef ::S S; u32 mut; std::vector<Msg> ms; int nk, olds; ::S last;
  bool M(u32 m) const { return mut & m; }
  void init(S &s) { s.old = olds; }
  int watermark(const S &s) const { int w = 0; for (int i = 0; i < (int)ms.size() && s.rec >> i & 1; i++) w = ms[i].seq; return w; }
  static bool open(u8 member, u8 mark, int to) { return member && member <= to && !mark; }
  bool valid(const Doc &d) const { return !open(d.member, d.mark, d.wm) && !open(d.other, d.omark, d.wm); }
  static void marked(Doc &d, int to) { if (open(d.member, d.mark, to)) d.mark = 1; if (open(d.other, d.omark, to)) d.omark = 1; }
  // a write of another process, as the store takes it
  bool put(S &n, const Doc &d) const { if (n.installed && !M(M_NO_VALIDATOR) && !valid(d)) return false; n.d = d; return true; }
  int standing(const Doc &d) const { return std::max(d.member * 2 + 1, d.tomb * 2); }
  template <class F> void succ(const S &s, F &&emit0) {
    S n; auto emit = [&](S &x) { std::sort(x.k, x.k + nk, [](const Col &a, const Col &b) { return memcmp(&a, &b, sizeof a) < 0; }); emit0(x); };
    for (int i = 0; i < (int)ms.size(); i++) { const Msg &m = ms[i];
      { n = s; Doc d = s.d; // a consumer of today: one guarded update; it records afterwards
        if (m.add == 2) { if (m.seq > d.wm && m.seq > d.other) { d.other = m.seq; d.omark = 0; } }
        else if (m.seq > d.wm && m.seq * 2 + m.add > (d.member || d.tomb ? standing(d) : 0)) { d.mark = 0; d.member = m.add ? m.seq : 0; d.tomb = m.add ? 0 : m.seq; }
        if (!put(n, d)) { n.refused = s.dec == 4 || !s.midst; lab("%s %d is refused", m.add == 2 ? "add other" : m.add ? "add" : "remove", m.seq); emit(n); }
        else { lab("%s %d", m.add == 2 ? "add other" : m.add ? "add" : "remove", m.seq); n.acked |= 1 << i; emit(n); } }
      if ((s.acked >> i & 1) && !(s.rec >> i & 1)) { n = s; n.rec |= 1 << i; lab("%d is recorded", m.seq); emit(n); }
      // the older statement: an upsert whose filter does not match fails on the unique key
      if (s.old && (s.rec >> i & 1)) { n = s; Doc d = s.d; n.old--;
        if (m.add == 2) { if (!d.other) { d.other = m.seq; d.omark = 0; put(n, d); lab("an older add of the other"); emit(n); } }
        else if (m.add ? !d.member && (!d.tomb || d.tomb < m.seq) : !d.tomb && (!d.member || d.member < m.seq)) { if (m.add) { d.member = m.seq; d.tomb = 0; d.mark = 0; } else { d.tomb = m.seq; d.member = 0; d.mark = 0; }
          bool ok = put(n, d); if (ok && m.add && s.dec && !s.installed) n.midst = 1; if (ok && m.add && m.seq < s.gone && s.installed) n.back = 1; lab("an older %s %d %s", m.add ? "add" : "remove", m.seq, ok ? "lands" : "is refused"); emit(n); } }
    }
    for (int k = 0; k < nk; k++) { const Col &q = s.k[k];
      switch (q.pc) {
      case 0: if (int w = watermark(s)) { n = s; n.k[k] = Col{1, (u8)w, (u8)(M(M_NO_MARKS) ? 0 : s.told)}; lab("a collector computes watermark %d%s", w, s.told ? ", and marks" : ""); emit(n); } break;
      case 1: { n = s; n.k[k] = Col{0, 0, 0}; Doc d = s.d; int to = std::max(q.w, d.wm); bool some = d.tomb && d.tomb <= q.w;
          if (some) { d.tomb = 0; d.wm = to; if (q.marks) marked(d, to);
            if (!put(n, d)) lab("the collector of %d is refused", q.w); else { if (n.gone < s.d.tomb) n.gone = s.d.tomb; if (!q.marks && s.dec) n.midst = 1; if (s.dec == 4 && s.d.other && s.d.other <= to && !s.d.omark) n.collected = 1; lab("the collector of %d: `_wm` is %d", q.w, d.wm); } }
          emit(n); break; }
      }
      if (q.pc) { n = s; n.k[k] = Col{0, 0, 0}; lab("a collector crashes"); emit(n); }
    }
    // the process that declares it: notifies collectors, marks the passed members, installs the
    // validator, marks once more
    auto pass = [&](Doc &d) { marked(d, d.wm); };
    switch (s.dec) {
    case 0: n = s; n.dec = 1; if (!M(M_NOT_TOLD)) n.told = 1; lab("collectors are notified"); emit(n); break;
    case 1: { n = s; n.dec = 2; Doc d = s.d; if (!M(M_VALIDATOR_FIRST) && !M(M_NO_PASS)) { pass(d); n.d = d; } lab("the stored entry is marked"); emit(n); break; }
    case 2: n = s; n.dec = M(M_ONE_PASS) ? 4 : 3; n.installed = 1; lab("the validator is installed"); emit(n); break;
    case 3: { n = s; n.dec = 4; Doc d = s.d; if (!M(M_NO_PASS)) pass(d); n.d = d; lab("and marked again"); emit(n); break; }
    }
  }
  bool reach;
  const char *check(const S &s) {
    if (reach) return s.collected ? "reached" : nullptr;
    if (s.refused) return "a consumer of today is refused";
    return s.back ? "an entry came back after its removal was collected" : nullptr;
  }
  const char *terminal(const S &) { return nullptr; }
};
static int pow3(int n) { return n ? 3 * pow3(n - 1) : 1; }
// All patterns of adds and removes; true: no violation, and complete.
static bool go(const char *nm, u32 mut, int messages, int nk, int olds, bool reach, bool trace) {
  u64 states = 0; bool reached = false; for (int k = 0; k < pow3(messages); k++) { P m; m.mut = mut; m.nk = nk; m.olds = olds; m.reach = reach; for (int i = 0; i < messages; i++) m.ms.push_back({(u8)(k / pow3(i) % 3), (u8)(i + 1)});
    MC<P> mc; Res r = mc.run(m, 60000000); states += r.n; reached = reached || !r.viol.empty(); if (!reach && (!r.viol.empty() || !r.complete)) { report(nm, r, trace); return false; } }
  printf("%-58s %s  states %llu\n", nm, reach ? reached ? "reached" : "NEVER" : "OK (complete)", (unsigned long long)states); return reach ? reached : true; }
int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "mutants")) { bool all = true; struct { const char *n; u32 m; bool reach; } ms[] = {{"nothing refuses", M_NO_VALIDATOR, false}, {"the stored entry is not marked", M_NO_PASS, false}, {"marked once", M_ONE_PASS, false}, {"the validator comes first", M_VALIDATOR_FIRST, false}, {"collectors do not mark", M_NO_MARKS, true}, {"collectors are not notified", M_NOT_TOLD, true}};
    for (auto &x : ms) { if (go(x.n, x.m, 3, 2, 2, x.reach, false)) { printf("  SURVIVES: %s\n", x.n); all = false; } } return !all; }
  if (argc > 1 && !strcmp(argv[1], "reach")) return !go("collected after it was declared", 0, 3, 1, 0, true, false);
  return !go("older consumers, two collectors, who declares it", 0, 4, 2, 3, false, true);
}
