// The ledger with its numbers as documents (src/patterns/ledger/ledger_slots.c): only _id is
// unique. A transaction is a commit of its document, one document for each number that it takes,
// and one for what it settles. See README.md.
#include "mc.hpp"
#include <vector>
enum Mut : u32 { M_NO_SLOT = 1, M_ONE_SLOT = 2, M_PASS_STUB = 8, M_STALE = 32, M_NO_LINK = 64, M_NEW_ID = 128, M_FILL_UNDECIDED = 256, M_OVERWRITE = 512, M_SLOTS_AFTER = 1024, V_REACH = 2048 };
enum { W = 3, TRIES = 2, AT = W * TRIES, NUM = 4, DOCS = AT + 2 * NUM + 1, A0 = AT, B0 = AT + NUM, LINK = AT + 2 * NUM };
enum { NONE, PENDING, COMMITTED, ABORTED };
// A document: 0 none, else the attempt + 1, and STUB if its commit has not been completed
enum { STUB = 16 };
struct Try { u8 state, sa, sb; signed char pa, pb; };
struct Wr { u8 pc, tries, sa, sb; signed char pa, pb; };
struct S6 { Try t[AT]; u8 d[DOCS]; Wr w[W]; u8 bad, told, rsum, looks; };
static const char *bm[] = {"", "a number was given twice", "a cached balance is wrong", "a transaction was booked twice", "a number is missing", "a transaction was settled twice", "a reader did not see what was answered before", "a transaction is there by half"};
struct P6 { typedef S6 S; u32 mut; int nw; bool rev, reader, bonly; signed char v[W]; S last;
  bool M(u32 m) const { return mut & m; }
  void init(S &) {}
  int writer(int t) const { return t / TRIES; }
  int value(int t) const { return rev && writer(t) > 0 ? -v[0] : v[writer(t)]; }
  bool settles(int p) const { return rev && p > 0; }
  // The transaction's document has its writer's id, which is one for all attempts.
  int doc_of(int t) const { return M(M_NEW_ID) ? t : writer(t) * TRIES; }
  bool whole(const S &s, int d) const { return s.d[d] && !(s.d[d] & STUB); }
  int at(const S &s, int d) const { return (s.d[d] & 15) - 1; }
  // The content of the ledger: transactions that are there, or whose commit is decided.
  bool counts(const S &s, int d) const { return s.d[d] && (!(s.d[d] & STUB) || s.t[at(s, d)].state == COMMITTED); }
  void top(const S &s, bool a, int *number, int *sum) const { *number = 0; *sum = 0;
    for (int d = 0; d < AT; d++) if (whole(s, d) || (M(M_FILL_UNDECIDED) && s.d[d])) { const Try &x = s.t[at(s, d)]; int n = a ? x.sa : x.sb; if (!n) continue; *sum += a ? value(at(s, d)) : -value(at(s, d)); if (n > *number) *number = n; } }
  int stub(const S &s) const { if (M(M_PASS_STUB) || M(M_FILL_UNDECIDED)) return -1; for (int d = 0; d < AT; d++) if (s.d[d] & STUB) return d; return -1; }
  // The documents of an attempt, in the order in which they are taken.
  int docs(int t, const Try &x, u8 out[4]) const { int n = 0; out[n++] = (u8)doc_of(t);
    if (!M(M_NO_SLOT)) { if (x.sa) out[n++] = (u8)(A0 + x.sa - 1); if (!M(M_ONE_SLOT)) out[n++] = (u8)(B0 + x.sb - 1); }
    if (settles(writer(t)) && !M(M_NO_LINK)) out[n++] = LINK;
    return n; }
  bool holds(const S &s, int t, int d) const { return s.d[d] && at(s, d) == t; }
  template <class F> void meet(const S &s, int d, const char *who, F &&emit) const { // a client that encounters a stub ends its commit
    S n = s; int t = at(s, d); switch (s.t[t].state) {
    case PENDING: n.t[t].state = ABORTED; lab("%s gives up commit %d, whose stub it meets", who, t); emit(n); break;
    case COMMITTED: n.d[d] &= ~STUB; lab("%s fills the stub of commit %d", who, t); emit(n); break;
    default: n.d[d] = 0; lab("%s takes the stub of commit %d away", who, t); emit(n); } }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int p = 0; p < nw; p++) { const Wr &q = s.w[p]; int t = p * TRIES + q.tries; char who[8]; snprintf(who, sizeof who, "W%d", p);
#define B n = s; Wr &x = n.w[p]; (void)x
      if (q.pc == 9 || q.tries == TRIES || (settles(p) && !whole(s, 0))) continue;
      u8 list[4];
      switch (q.pc) {
      case 0: { int d = stub(s); if (d >= 0) { meet(s, d, who, emit); break; } // reads account a
        B; int own = doc_of(t); if (!M(M_NEW_ID) && s.d[own] && whole(s, own)) { x.pc = 9; n.told |= 1 << p; lab("W%d: its id exists", p); emit(n); break; }
        int num, sum; top(s, true, &num, &sum); if (num >= NUM) break; if (!bonly || p != 1) x.sa = num + 1, x.pa = sum; x.pc = 1; lab("W%d: next of a is %d, %d before it", p, x.sa, x.pa); emit(n); break; }
      case 1: { int d = stub(s); if (d >= 0) { meet(s, d, who, emit); break; } // reads account b
        B; int num, sum; top(s, false, &num, &sum); if (num >= NUM) break; x.sb = num + 1; x.pb = sum; x.pc = 2;
        n.t[t].state = PENDING; n.t[t].sa = x.sa; n.t[t].sb = x.sb; n.t[t].pa = x.sa ? x.pa + value(t) : 0; n.t[t].pb = x.pb - value(t);
        if (M(M_STALE) && q.tries) { n.t[t].pa = s.t[t - 1].pa; n.t[t].pb = s.t[t - 1].pb; }
        lab("W%d: next of b is %d, %d before it; commit %d begins", p, x.sb, x.pb, t); emit(n); break; }
      case 2: { int count = docs(t, s.t[t], list); bool all = true;                        // takes its documents, in any order
        if (s.t[t].state == ABORTED) { B; for (int i = 0; i < DOCS; i++) if (holds(s, t, i)) n.d[i] = 0; x.pc = 0; x.tries++; x.sa = x.sb = 0; x.pa = x.pb = 0; lab("W%d: commit %d was given up: again", p, t); emit(n); break; }
        for (int i = 0; i < count; i++) { int d = list[i]; if (holds(s, t, d)) continue; all = false;
          if (M(M_SLOTS_AFTER) && d >= A0) continue;
          if (s.d[d] && !M(M_OVERWRITE)) {
            if (s.d[d] & STUB) { meet(s, d, who, emit); }
            else { B; n.t[t].state = ABORTED; lab("W%d: document %d is taken: commit %d fails", p, d, t); emit(n); }
            continue; }
          B; n.d[d] = (u8)((t + 1) | STUB); lab("W%d puts a stub at %d for commit %d", p, d, t); emit(n); }
        if (M(M_SLOTS_AFTER)) all = s.d[list[0]] != 0 && holds(s, t, list[0]);
        if (all) { B; n.t[t].state = COMMITTED; x.pc = 3; n.told |= 1 << p; lab("W%d: commit %d is decided, and answered", p, t); emit(n);
          n.told = s.told; x.pc = 0; x.tries++; x.sa = x.sb = 0; x.pa = x.pb = 0; lab("W%d: commit %d is decided, without an answer: again", p, t); emit(n); }
        break; }
      case 3: { bool any = false; for (int d = 0; d < DOCS; d++) if (holds(s, t, d) && (s.d[d] & STUB)) { any = true; B; n.d[d] &= ~STUB; lab("W%d fills %d", p, d); emit(n); }
        if (M(M_SLOTS_AFTER)) { int count = docs(t, s.t[t], list); for (int i = 1; i < count; i++) if (!holds(s, t, list[i]) && !s.d[list[i]]) { any = true; B; n.d[list[i]] = (u8)(t + 1); lab("W%d writes %d", p, list[i]); emit(n); } }
        if (!any) { B; x.pc = 9; lab("W%d ends", p); emit(n); } break; } } }
    if (reader && s.looks < 2) { int d = stub(s); if (d >= 0) meet(s, d, "reader", emit); else { n = s; n.looks++; u8 missing = s.told; for (int i = 0; i < AT; i++) if (whole(s, i)) missing &= (u8)~(1 << writer(at(s, i))); if (missing) n.bad = 6; lab("the reader looks at the accounts"); emit(n); } }
  }
  const char *check(const S &s) { if (s.bad) return bm[s.bad];
    if (M(V_REACH)) { for (int p = 0; p < nw; p++) if (!settles(p) && s.w[p].pc != 9) return nullptr; return "REACHED"; }
    int links = 0; u8 booked[W] = {0};
    for (int i = 0; i < AT; i++) { if (!counts(s, i)) continue; const Try &x = s.t[at(s, i)];
      if (++booked[writer(at(s, i))] > 1) return bm[3];
      links += settles(writer(at(s, i)));
      int a = 0, b = 0; bool ga = x.sa <= 1, gb = x.sb == 1;
      for (int j = 0; j < AT; j++) if (counts(s, j)) { const Try &y = s.t[at(s, j)];
          if (j != i && ((x.sa && y.sa == x.sa) || y.sb == x.sb)) return bm[1];
          a += y.sa && y.sa <= x.sa ? value(at(s, j)) : 0; b -= y.sb <= x.sb ? value(at(s, j)) : 0;
          ga = ga || y.sa == x.sa - 1; gb = gb || y.sb == x.sb - 1; }
      if (!ga || !gb) return bm[4];
      if (x.pa != a || x.pb != b) return bm[2]; }
    return links > 1 ? bm[5] : nullptr; }
  const char *terminal(const S &) { return nullptr; } };
static int failures;
static Res go(const char *nm, u32 mut, int nw, bool rev, bool reader, std::vector<int> v, bool show, bool bonly = false) { P6 m; m.bonly = bonly; m.mut = mut; m.nw = nw; m.rev = rev; m.reader = reader; for (int i = 0; i < W; i++) m.v[i] = (signed char)(i < (int)v.size() ? v[i] : 0); MC<P6> mc; Res r = mc.run(m, 60000000); report(nm, r, show); return r; }
static void good(const Res &r) { if (!r.viol.empty() || !r.complete) failures++, puts("!!! FAILED"); }
int main(int argc, char **) { bool show = argc > 1; puts("-- the protocol");
  good(go("2 writers, reader", 0, 2, false, true, {1, -2}, show));
  good(go("3 writers", 0, 3, false, false, {1, -2, 4}, show));
  good(go("a transfer, 2 that reverse it, reader", 0, 3, true, true, {1}, show));
  good(go("3 writers, one of them on b only", 0, 3, false, false, {1, -2, 4}, show, true));
  puts("-- all end"); { Res r = go("3 writers", V_REACH, 3, false, false, {1, -2, 4}, show); if (r.viol != "REACHED") failures++, puts("!!! FAILED"); }
  puts("-- mutants"); struct { u32 f; const char *n; bool rev, reader; } L[] = {
    {M_NO_SLOT, "no documents for the numbers", false, false},
    {M_ONE_SLOT, "a document for one account's number only", false, false},
    {M_SLOTS_AFTER, "the numbers are taken after the decision", false, false},
    {M_OVERWRITE, "a number that is taken is written over", false, false},
    {M_PASS_STUB, "stubs of commits are passed over", false, true},
    {M_FILL_UNDECIDED, "what is not decided counts", false, false},
    {M_STALE, "fresh numbers with the balances of the first try", false, false},
    {M_NEW_ID, "a retry under a new id", false, false},
    {M_NO_LINK, "no document for what is settled", true, false}};
  int alive = 0; for (auto &l : L) { Res r = go(l.n, l.f, l.rev ? 3 : 2, l.rev, l.reader, {1, -2}, show, l.f == M_ONE_SLOT); if (r.viol.empty()) alive++, puts("!!! SURVIVOR"); }
  printf("%zu mutants, %d survivors\n", sizeof L / sizeof *L, alive); return alive || failures; }
