// A save of a revision next to programs that change the document and leave its number unchanged:
// the steps of src/patterns/revision/revision.c. The document has number n, field a (the savers'),
// field b (the plain writers'), and a revision. Two savers read, think, change a, and save. They
// save by one write with all that was read in its filter, or otherwise by a commit. The commit
// compares the stored entry with the read one and writes against the entry that it read. The plain
// writer sets b, sets it back, or writes its old copy of the whole document.
#include "mc.hpp"
enum Mut : u32 { M_NUMBER_DIRECT = 1, M_NUMBER_COMMIT = 2, M_NUMBER_JUDGE = 4, M_UNANSWERED = 8, M_BLIND_COMMIT = 16, M_MERGE_MINE = 32, M_NO_NUMBER = 64 };
enum { READ = 0, SEND, LOOK_AFTER, COMMIT, WRITE, SAVED, CONFLICT, UNKNOWN, DEAD };
static const int SAVERS = 2;
struct D { u8 n, a, b, rev; bool operator==(const D &o) const { return n == o.n && a == o.a && b == o.b && rev == o.rev; } };
struct T { D d; u8 pc[SAVERS]; D base[SAVERS], seen[SAVERS]; u8 unanswered[SAVERS], late[SAVERS], in[SAVERS], sends[SAVERS]; u8 fresh, plain, losses, lates, crashes; };
struct P { typedef T S; u32 mut; bool merges; int losses, lates, crashes, plains; S last; const char *bad = nullptr;
  bool M(u32 m) const { return mut & m; }
  void init(S &s) { s.d = {1, 0, 0, 1}; s.fresh = 1; s.losses = losses; s.lates = lates; s.crashes = crashes; s.plain = plains; bad = nullptr; }
  bool same(const D &x, const D &y) const { return x.a == y.a && x.b == y.b; }
  // one write puts number + 1 over the stored entry; no part of the stored entry may go unseen
  void put(S &n, int i, u8 number, u8 b, u8 seen_b, u8 seen_a) {
    if (n.d.b != b && n.d.b != seen_b) bad = "a plain write is overwritten without a word";
    if (!merges && n.d.a != seen_a) bad = "a save is overwritten without a word";
    if (n.in[i]) bad = "a save is in twice";
    if (number != n.d.n + 1) bad = "a number is given twice"; n.d = {number, (u8)(i == 0), b, (u8)(10 + i)}; n.in[i] = 1; }
  bool land(S &n, int i) { const D &r = n.base[i]; bool match = (n.d.n == r.n || M(M_NO_NUMBER)) && (same(n.d, r) || M(M_NUMBER_DIRECT)); if (match) put(n, i, r.n + 1, r.b, r.b, r.a); return match; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int i = 0; i < SAVERS; i++) { const D &r = s.base[i];
      switch (s.pc[i]) {
      case READ: n = s; n.base[i] = s.d; n.pc[i] = SEND; lab("%d reads n %d b %d", i, s.d.n, s.d.b); emit(n); break;
      case SEND: { n = s; bool took = land(n, i); n.pc[i] = took ? SAVED : s.unanswered[i] && !M(M_UNANSWERED) ? LOOK_AFTER : COMMIT; lab("%d sends: %s", i, took ? "saved" : "not matched"); emit(n);
        if (s.losses && s.sends[i] < 2) { n = s; n.losses--; n.sends[i]++; land(n, i); n.unanswered[i] = 1; n.pc[i] = LOOK_AFTER; lab("%d sends, the answer is lost", i); emit(n); }
        if (s.lates && !s.late[i]) { n = s; n.lates--; n.late[i] = 1; n.unanswered[i] = 1; n.pc[i] = LOOK_AFTER; lab("%d sends, it may land late", i); emit(n); } break; }
      case LOOK_AFTER: n = s; n.pc[i] = s.d.rev == 10 + i ? SAVED : s.d.n == r.n && (same(s.d, r) || M(M_NUMBER_JUDGE)) ? (M(M_NUMBER_JUDGE) && !same(s.d, r) ? COMMIT : SEND) : UNKNOWN; lab("%d looks: %s", i, n.pc[i] == SAVED ? "saved" : n.pc[i] == UNKNOWN ? "unknown" : "again"); emit(n); break;
      case COMMIT: { n = s; bool stale = s.d.n != r.n || (!same(s.d, r) && !M(M_NUMBER_COMMIT)); n.seen[i] = s.d;
        bool both = s.d.a != r.a; // both changed a
        n.pc[i] = stale && (!merges || both) ? CONFLICT : WRITE; lab("%d looks in a commit: %s", i, n.pc[i] == WRITE ? "writes" : "conflict"); emit(n); break; }
      case WRITE: { n = s; const D &x = s.seen[i]; bool hold = M(M_BLIND_COMMIT) ? s.d.n == x.n : s.d == x; // CE1, CE2 of commit_entry.c
        bool stale = x.n != r.n || !same(x, r); u8 b = merges && stale && !M(M_NUMBER_COMMIT) && !M(M_MERGE_MINE) ? x.b : r.b;
        if (hold) put(n, i, x.n + 1, b, M(M_NUMBER_COMMIT) || M(M_MERGE_MINE) ? r.b : x.b, x.a); n.pc[i] = hold ? SAVED : COMMIT; lab("%d writes: %s", i, hold ? "saved" : "again"); emit(n); break; } }
      if (s.pc[i] < SAVED && s.pc[i] > READ && s.crashes) { n = s; n.crashes--; n.pc[i] = DEAD; lab("%d dies", i); emit(n); }
      if (s.late[i]) { n = s; n.late[i] = 0; bool took = land(n, i); lab("the late write of %d %s", i, took ? "lands" : "finds another document"); emit(n); } }
    if (s.plain) { n = s; n.plain--; n.d.b = s.d.b ? 0 : 1; lab("a plain write: b %d", n.d.b); emit(n); }
  }
  const char *check(const S &s) { if (bad) return bad; for (int i = 0; i < SAVERS; i++) { if (s.pc[i] == SAVED && !s.in[i]) return "reported as saved, but is not"; if (s.pc[i] == CONFLICT && s.in[i]) return "reported as a conflict, but is in"; } return nullptr; }
  const char *terminal(const S &s) { for (int i = 0; i < SAVERS; i++) if (s.pc[i] < SAVED) return "another process never ends"; return nullptr; }
};
static bool go(const char *nm, u32 mut, bool merges, bool trace) { P m; m.mut = mut; m.merges = merges; m.losses = 1; m.lates = 1; m.crashes = 1; m.plains = 3; MC<P> mc; Res r = mc.run(m, 60000000); report(nm, r, trace); return r.viol.empty() && r.complete; }
int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "mutants")) { bool all = true; struct { const char *n; u32 m; } ms[] = {{"the filter has the number only", M_NUMBER_DIRECT}, {"the commit compares the number only", M_NUMBER_COMMIT}, {"the look after a lost answer compares the number only", M_NUMBER_JUDGE}, {"an unanswered send that matches nothing goes on", M_UNANSWERED}, {"the commit writes against the number", M_BLIND_COMMIT}, {"a merge takes mine", M_MERGE_MINE}, {"the filter has no number", M_NO_NUMBER}};
    for (auto &x : ms) { bool one = go(x.n, x.m, false, false), two = go(x.n, x.m, true, false); if (one && two) { printf("  SURVIVES: %s\n", x.n); all = false; } } return !all; }
  bool ok = go("save, next to a plain writer", 0, false, true); ok &= go("merge, next to a plain writer", 0, true, true); return !ok; }
