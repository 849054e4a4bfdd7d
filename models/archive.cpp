// Archives of a store (src/archive/archiver.c, src/engine/storage/log_archive.c): commits, frames
// that checkpoints move into the file, logs that begin again, an archiver with two read
// transactions that dies and starts again, a base that is copied page by page, and restores. See
// README.md.
#include "mc.hpp"
enum { PAGES = 2, LOG = 4, COMMITS = 5, SEGS = 10 };
enum Mut : u32 {
  M_NO_PIN = 1,       // no read transaction pins the log
  M_END_FIRST = 2,    // the first transaction ends before the second begins
  M_TRUST = 8,        // an archiver continues the archive without a comparison with the log
  M_LENGTH = 16,      // it compares only the length of the log
  M_BASE_OVER = 64,   // a page of the base overwrites a later page of the log
  M_REPLAY_NOW = 128, // the log is replayed from the beginning of the base only
  M_HEAD_EARLY = 256, // the head changes before the target has the segment
  M_ACK_BASE = 1024,  // an answer does not wait for the base of the generation
  M_ACK_EARLY = 2048, // an answer waits for the beginning of a step, not for its end
  M_ACK_LATE = 4096,  // the number of commits is read after the step, not before its transaction
  V_REACH = 512,      // not a mutant: reports a restore after a log has begun again
};
// a frame and a page have the number of their commit; each commit writes one page
struct Seg { u8 kind, page, value, replay; }; // 1 log, 2 base, 3 end
struct Tx { u8 open, gen, end, locks; };      // locks: it reads the log, not only the file
struct St {
  u8 commits, page[PAGES];                    // the number of commits, the content of the snapshot
  u8 file[PAGES];                             // the file
  u8 gen, frames, moved, at[LOG], val[LOG];   // the log: page and value of each frame
  Tx tx[2];
  u8 alive, held, known, agen, aframes;       // the archiver: its place
  u8 step, next;                              // 0 idle, 1 the second transaction is open, 2 shipped
  u8 base, read, chain, replay;               // base: 0 none, 1.. next page; read: all pages were
  u8 lgen, lframes, lbase, lread, lreplay;    // the state after the last segment in the target
  u8 n, first; Seg s[SEGS]; u8 base_at;       // segments of the generation; commits before the first
  u8 seen, acked, kept;                       // commits: at the step, answered, of earlier generations
  u8 dies, bad;
};
static const char *bm[] = {"", "a restore differs from the commits", "a generation has a gap", "REACHED", "a frame is lost to an archiver that did not die", "an answered commit is not in the archive"};
struct Cfg { const char *name; int commits, dies; u32 mut; };
struct M {
  typedef St S; Cfg c; S last;
  bool m(u32 x) const { return c.mut & x; }
  void init(S &s) { s.gen = 1; s.dies = c.dies; s.held = 2; }
  static bool locked(const S &s) { for (int i = 0; i < 2; i++) if (s.tx[i].open && s.tx[i].locks) return true; return false; }
  static bool file_locked(const S &s) { for (int i = 0; i < 2; i++) if (s.tx[i].open && !s.tx[i].locks) return true; return false; }
  static u8 mark(const S &s) { u8 most = s.frames; for (int i = 0; i < 2; i++) if (s.tx[i].open && s.tx[i].locks && s.tx[i].gen == s.gen && s.tx[i].end < most) most = s.tx[i].end; return most; }
  void open(S &n, int i) const { n.tx[i].open = 1; n.tx[i].gen = n.gen; n.tx[i].end = n.frames; n.tx[i].locks = !m(M_NO_PIN) && n.moved < n.frames; if (m(M_NO_PIN)) n.tx[i].open = 0, n.tx[i].locks = 0; }
  static void add(S &n, Seg g) { if (n.n < SEGS) n.s[n.n++] = g; }
  void saved(S &n) const { n.lgen = n.agen; n.lframes = n.aframes; n.lbase = n.base; n.lread = n.read; n.lreplay = n.replay; }
  // the log of the generation: commit numbers must be consecutive
  static u8 last_commit(const S &s) { u8 v = s.first; for (int i = 0; i < s.n; i++) if (s.s[i].kind == 1) v = s.s[i].value; return v; }
  // the last commit that a restore of the generation reaches
  static u8 reached(const S &s) { for (int i = 0; i < s.n; i++) if (s.s[i].kind == 3) return last_commit(s); return 0; }
  static void forget(S &n) { u8 r = reached(n); if (r > n.kept) n.kept = r; memset(n.s, 0, sizeof n.s); n.n = 0; }
  // answers the commits of the step, if the generation has a base
  void answer(S &n) const {
    u8 most = m(M_ACK_LATE) ? n.commits : n.seen; bool base = m(M_ACK_BASE);
    for (int i = 0; i < n.n; i++) base |= n.s[i].kind == 3;
    if (base && most > n.acked) n.acked = most; }
  // every commit after the end of the base is restored and compared with the commits 1 to k: commit
  // k writes page k % PAGES
  const char *restore(const S &s) const {
    u8 v = s.first; for (int i = 0; i < s.n; i++) if (s.s[i].kind == 1) { if (s.s[i].value != v + 1) return bm[2]; v = s.s[i].value; }
    int end = -1; for (int i = 0; i < s.n; i++) if (s.s[i].kind == 3) { end = i; break; }
    if (end < 0) return nullptr;
    u8 page[PAGES] = {0}, logged[PAGES] = {0}; u8 k = s.first;
    for (int i = m(M_REPLAY_NOW) ? s.base_at : 0; i < s.n; i++) { const Seg &g = s.s[i];
      if (g.kind == 1) { page[g.page] = g.value; logged[g.page] = 1; k = g.value; }
      if (g.kind == 2 && (!logged[g.page] || m(M_BASE_OVER))) page[g.page] = g.value;
      if (i < end) continue;
      if (g.kind == 2) continue;
      for (int p = 0; p < PAGES; p++) { u8 want = 0; for (u8 x = 1; x <= k; x++) if (x % PAGES == p) want = x; if (page[p] != want) return bm[1]; } }
    return nullptr;
  }
  template <class F> void succ(const S &s, F &&emit) {
    S n;
    if (s.n >= SEGS - 1) return;
    // a commit; if all of the log is in the file and no transaction reads the log, it begins again
    if (s.commits < c.commits) { n = s;
      if (s.frames && s.moved == s.frames && !locked(s)) { n.gen++; n.frames = n.moved = 0; memset(n.at, 0, sizeof n.at); memset(n.val, 0, sizeof n.val); }
      if (n.frames < LOG) { n.commits++; u8 p = n.commits % PAGES; n.page[p] = n.commits; n.at[n.frames] = p; n.val[n.frames++] = n.commits; lab("commit %d: frame %d of log %d", n.commits, n.frames, n.gen); emit(n); } }
    // a checkpoint moves a frame
    if (s.moved < mark(s) && !file_locked(s)) { n = s; n.file[s.at[s.moved]] = s.val[s.moved]; n.moved++; lab("a checkpoint moves frame %d", n.moved); emit(n); }
    if (s.alive && s.dies) { n = s; n.dies--; n.alive = 0; memset(n.tx, 0, sizeof n.tx); n.held = 2; n.step = n.known = n.seen = 0; n.agen = n.aframes = n.base = n.read = n.next = n.replay = 0; lab("the archiver dies"); emit(n); }
    if (!s.alive) { if (!s.dies && s.n) return; n = s; n.alive = 1; n.step = 0; n.held = 2; n.agen = s.lgen; n.aframes = s.lframes; n.base = s.lbase; n.read = s.lread; n.replay = s.lreplay; lab("an archiver starts"); emit(n); return; }
    int i = s.held == 0 ? 1 : 0;
    switch (s.step) {
    case 0: // begin the second transaction
      n = s; if (m(M_END_FIRST) && s.held < 2) { n.tx[s.held].open = 0; n.step = 3; lab("ends the first transaction"); emit(n); break; }
      open(n, i); n.next = i; n.chain = n.tx[i].gen ? n.tx[i].gen : n.gen; n.tx[i].gen = s.gen; n.tx[i].end = s.frames; n.step = 1; n.seen = s.commits; if (m(M_ACK_EARLY)) answer(n); lab("transaction %d at frame %d of log %d%s", i, s.frames, s.gen, n.tx[i].locks ? "" : ", all in the file"); emit(n); break;
    case 3: n = s; open(n, i); n.next = i; n.tx[i].gen = s.gen; n.tx[i].end = s.frames; n.step = 1; n.seen = s.commits; lab("transaction %d at frame %d of log %d", i, s.frames, s.gen); emit(n); break;
    case 1: { // find the place, then ship a frame
      n = s; const Tx &t = s.tx[s.next];
      if (!s.known) { bool fits = s.n && s.aframes && s.agen == t.gen && s.aframes <= t.end;
        if (m(M_LENGTH)) fits = s.n && s.aframes && s.aframes <= t.end;
        if (m(M_TRUST)) fits = s.n;
        n.known = 1;
        if (fits) { if (m(M_LENGTH) || m(M_TRUST)) { n.agen = t.gen; if (n.aframes > t.end) n.aframes = t.end; } lab("continues after frame %d", n.aframes); }
        else { // a new generation: its first frame is the first that is not in the file
          forget(n); n.base = 1; n.read = 0; n.replay = 0; n.base_at = 0; n.agen = t.gen;
          n.aframes = s.gen == t.gen && s.moved >= t.end ? t.end : 0;
          if (s.gen != t.gen) n.aframes = t.end;
          n.first = s.gen != t.gen ? 0 : n.aframes ? s.val[n.aframes - 1] : s.frames ? s.val[0] - 1 : s.commits;
          if (s.gen != t.gen) { n.step = 0; n.known = 0; n.tx[s.next].open = 0; }
          lab("begins a generation after frame %d", n.aframes); }
        emit(n); break; }
      if (n.agen != t.gen) { // the log has begun again, which the first transaction allows once
        n.agen = t.gen; n.aframes = 0; lab("follows to log %d", t.gen); emit(n); break; }
      if (n.aframes < t.end) {
        if (s.gen != t.gen || s.aframes >= s.frames) { n.known = 0; n.step = 0; n.tx[s.next].open = 0; if (s.held < 2) n.tx[s.held].open = 0; n.held = 2; forget(n); n.aframes = 0; if (s.dies == c.dies) n.bad = 4; lab("the frame is gone: a gap"); emit(n); break; }
        if (m(M_HEAD_EARLY)) { S e = n; e.aframes++; saved(e); if (e.dies) { e.dies--; e.alive = 0; memset(e.tx, 0, sizeof e.tx); e.held = 2; e.step = e.known = 0; e.agen = e.aframes = e.base = e.read = e.next = e.replay = 0; lab("dies after its head"); emit(e); } }
        add(n, Seg{1, s.at[s.aframes], s.val[s.aframes], 0}); n.aframes++; saved(n); lab("ships frame %d: commit %d", n.aframes, s.val[s.aframes]); emit(n); break; }
      n.step = 2; lab("has everything"); emit(n); break; }
    case 2: // end the first transaction; then a page of the base
      n = s; if (s.held < 2) n.tx[s.held].open = 0; n.held = s.next; n.step = 0; n.tx[n.held].open = !m(M_NO_PIN);
      answer(n); lab("ends the first transaction");
      if (s.base && s.read) { S e = n; add(e, Seg{3, 0, 0, 0}); e.base = 0; e.read = 0; saved(e); answer(e); lab("the base is complete"); emit(e); break; }
      if (s.base) { S e = n; if (s.base == 1) e.base_at = s.n; add(e, Seg{2, (u8)(s.base - 1), s.file[s.base - 1], 0}); e.base = s.base + 1;
        if (e.base > PAGES) e.read = 1;
        saved(e); lab("copies page %d: %d", s.base - 1, s.file[s.base - 1]); emit(e); break; }
      emit(n); break;
    }
  }
  const char *check(const S &s) {
    const char *w = restore(s);
    if (w) return w;
    if (s.bad) return bm[s.bad];
    u8 r = reached(s); if (s.acked > (r > s.kept ? r : s.kept)) return bm[5];
    if (m(V_REACH)) { for (int i = 0; i < s.n; i++) if (s.s[i].kind == 3 && s.gen > 2 && s.n && last_commit(s) == c.commits) return bm[3]; }
    return nullptr;
  }
  const char *terminal(const S &) { return nullptr; }
};
int main(int argc, char **argv) {
  static const Cfg all[] = {
    {"four commits, no death", 4, 0, 0}, {"five commits, no death", 5, 0, 0}, {"four commits, a death", 4, 1, 0}, {"five commits, two deaths", 5, 2, 0}};
  bool reach = argc > 1 && !strcmp(argv[1], "reach"); int bad = 0;
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_NO_PIN, "no transaction pins the log"}, {M_END_FIRST, "the first transaction ends before the second begins"}, {M_TRUST, "continues without a comparison"}, {M_LENGTH, "compares only the length of the log"},
      {M_BASE_OVER, "a page of the base overwrites the log"}, {M_REPLAY_NOW, "the log is replayed from the base only"}, {M_HEAD_EARLY, "the head changes before the target"},
      {M_ACK_BASE, "an answer does not wait for the base"}, {M_ACK_EARLY, "an answer waits for the beginning of a step"}, {M_ACK_LATE, "the number is read after the step"}};
    for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M m; m.c = c; MC<M> mc; Res r = mc.run(m); if (r.viol.empty()) continue; dead = true; printf("%-60s [%s] KILLED: %s (%zu steps)\n", u.name, c.name, r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; }
      if (!dead) { printf("%-60s SURVIVES\n", u.name); bad++; } }
    return bad; }
  for (auto c : all) { if (reach) c.mut = V_REACH; M m; m.c = c; MC<M> mc; Res r = mc.run(m); report(c.name, r, !reach); if (!reach) bad |= !r.viol.empty() || !r.complete; else bad += r.viol.empty(); }
  return reach ? bad == 4 : bad;
}
