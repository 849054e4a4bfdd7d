// Pages that survive commits (src/engine/storage/page_cache.h): one page of a table in the file and
// in the log, a writer that begins the log again, a checkpoint, readers, and the cache with the
// names of pages. Readers may rest between two reads (src/engine/reader_pool.c), and find pages without
// SQLite (src/engine/storage/kv_direct.c). SQLite's locks are modelled as they are. See README.md.
#include "mc.hpp"
enum { NR = 2, FR = 2, GEN = 2 };
enum Mut : u32 {
  M_NO_MOVED = 1,      // the name of a page of the file lacks the number of moved frames
  M_NO_SALTS = 2,      // it lacks the generation of the log
  M_ONE_COPY = 4,      // the second copy of the header is not compared
  M_FLUX = 8,          // more frames are moved than the log has, and the name counts
  M_FRAME_SALTS = 16,  // the name of a frame lacks the generation
  M_WRITER = 32,       // the writer puts in its own frames before they are committed
  M_RESUME = 64,       // a reader that rests continues after a commit
  M_GATE = 128,        // closing the gate leaves readers that rest
  M_LOG = 256,         // a reader without SQLite searches the log although all of it was moved
  M_AFTER = 512,       // it does not compare the header after it has read the number of moved frames
  V_REACH = 1024,      // not a mutant: a page of the file comes from the cache after a restart
  V_RESUMED = 2048,    // not a mutant: a reader that rested continues
};
enum { CLOSED, READS, RESTS };  // the transaction of a reader
enum { IDLE, BEGUN, COMPARE, ASK, MOVED, SECOND, FILE_READ, FRAME_READ };  // of a reader
enum { W_IDLE, W_HEAD2, W_HEAD1, W_ZERO, W_WRITTEN, W_PUB2, W_PUB1 };  // of the writer
struct Head { u8 gen, mx, value; };  // value: what the page is after the last commit
struct Reader { u8 pc, open, gen, mx, min, zero, expect, ngen, nmx, nmoved, known, dmoved, direct; };
struct St {
  Head first, second, next; u8 moved, page[FR], value[FR], file, w, ck, safe, commits, gate;
  Reader r[NR]; u8 of_file[GEN][FR + 1], of_log[GEN][FR]; u8 bad; };  // cached: value + 1
static const char *bm[] = {"", "a reader gets another version of the page", "REACHED (a cached page of the file after a restart)",
  "a reader continues before the last commit", "a reader has a transaction while the gate is closed", "REACHED (a reader that rested continues)"};
struct Cfg { const char *name; bool file, log, rests; int commits; u32 mut; };  // which pages are cached, whether readers rest
struct M {
  typedef St S; Cfg c; S last; M(const Cfg &k) : c(k) {}
  bool m(u32 x) const { return c.mut & x; }
  void init(S &) {}
  int frame_of(const S &s, const Reader &r) const {
    if (r.direct) { for (int f = r.dmoved == r.mx && !m(M_LOG) ? 0 : r.mx; f > (m(M_LOG) ? 0 : r.dmoved); f--) if (s.page[f - 1]) return f; return 0; }
    for (int f = r.mx; f >= r.min; f--) if (s.page[f - 1]) return f; return 0; }
  void got(S &n, const Reader &r, u8 v) const { if (v != r.expect) n.bad = 1; }
  u8 &named(S &n, const Reader &r) const { return n.of_file[m(M_NO_SALTS) ? 0 : r.ngen][m(M_NO_MOVED) ? 0 : r.nmoved]; }
  u8 &framed(S &n, u8 gen, int f) const { return n.of_log[m(M_FRAME_SALTS) ? 0 : gen][f - 1]; }
  template <class F> void reader(const S &s, int i, F &&emit) const {
    const Reader &q = s.r[i]; S n = s; Reader &x = n.r[i];
    switch (q.pc) {
    case IDLE:
      if (q.open == RESTS && !s.gate && (m(M_RESUME) || (s.first.gen == q.gen && s.first.mx == q.mx))) { x.open = READS; if (q.expect != s.first.value) n.bad = 3; else if (m(V_RESUMED)) n.bad = 5; lab("R%d continues", i); emit(n); return; }
      if (q.open == RESTS) { x = Reader(); lab("the transaction of R%d ends", i); emit(n); return; }
      if (!q.open) { bool zero = s.moved == s.first.mx;
        if (memcmp(&s.first, &s.second, sizeof s.first) || (zero && s.ck) || s.gate) return;  // SQLite tries again
        x = Reader(); x.open = READS; x.gen = s.first.gen; x.mx = s.first.mx; x.min = s.moved + 1; x.zero = zero; x.expect = s.first.value; lab("R%d begins: generation %d, %d frames, from %d", i, x.gen, x.mx, x.min); if (c.rests) x.pc = BEGUN; emit(n); return; }
      x = Reader(); lab("R%d ends", i); emit(n); n = s;
      if (c.rests) { x.open = RESTS; lab("R%d rests", i); emit(n); n = s; }
      x.pc = frame_of(s, q) ? FRAME_READ : ASK; lab("R%d looks for the page in the %s", i, x.pc == ASK ? "file" : "log"); emit(n);
      return;
    case BEGUN: x.dmoved = s.moved; x.pc = COMPARE; lab("R%d: %d were moved", i, s.moved); emit(n); return;
    case COMPARE: x.direct = x.dmoved <= q.mx && (m(M_AFTER) || (s.first.gen == q.gen && s.first.mx == q.mx)); if (!x.direct) x.dmoved = 0; x.pc = IDLE; lab("R%d reads %s SQLite", i, x.direct ? "without" : "by"); emit(n); return;
    case ASK: x.ngen = s.first.gen; x.nmx = s.first.mx; x.pc = MOVED; lab("R%d reads the header: %d, %d", i, x.ngen, x.nmx); emit(n); return;
    case MOVED: x.nmoved = s.moved; x.pc = SECOND; lab("R%d: %d are moved", i, s.moved); emit(n); return;
    case SECOND: x.known = (m(M_ONE_COPY) || (s.second.gen == q.ngen && s.second.mx == q.nmx)) && (m(M_FLUX) || q.nmoved <= q.nmx) && c.file; x.nmx = 0; x.pc = FILE_READ; lab("R%d: the name is %sknown", i, x.known ? "" : "not "); emit(n); return;
    case FILE_READ: { u8 &p = named(n, q); x.pc = IDLE;
      if (q.known && p) { got(n, q, p - 1); if (m(V_REACH) && q.ngen) n.bad = 2; lab("R%d takes the page from the cache", i); } else { got(n, q, s.file); if (q.known) p = s.file + 1; lab("R%d reads the file: %d", i, s.file); }
      emit(n); return; }
    case FRAME_READ: { int f = frame_of(s, q); u8 &p = framed(n, s.first.gen, f); x.pc = IDLE; if (c.log && p) got(n, q, p - 1); else { got(n, q, s.value[f - 1]); if (c.log) p = s.value[f - 1] + 1; } lab("R%d reads frame %d", i, f); emit(n); return; } }
  }
  bool log_is_read(const S &s) const { for (const Reader &r : s.r) if (r.open && !r.zero) return true; return false; }
  template <class F> void writer(const S &s, F &&emit) const { S n = s;
    switch (s.w) {
    case W_IDLE: {
      if (s.commits == c.commits) return;
      if (s.first.mx && s.moved == s.first.mx && !log_is_read(s) && !s.ck && s.first.gen + 1 < GEN) { n.next = s.first; n.next.gen++; n.next.mx = 0; n.w = W_HEAD2; lab("the writer begins the log again"); emit(n); return; }
      if (s.first.mx == FR) return;
      for (int p = 0; p < 2; p++) { n = s; n.next = s.first; n.next.mx++; n.page[s.first.mx] = p; n.value[s.first.mx] = p ? s.commits + 1 : 0; n.next.value = p ? s.commits + 1 : s.first.value; n.commits++; n.w = W_WRITTEN;
        if (m(M_WRITER) && p && !framed(n, s.first.gen, s.first.mx + 1)) framed(n, s.first.gen, s.first.mx + 1) = s.commits + 2;
        lab("the writer writes frame %d%s", s.first.mx + 1, p ? ", the page" : ""); emit(n); }
      return; }
    case W_HEAD2: n.second = s.next; n.w = W_HEAD1; lab("second header"); emit(n); return;
    case W_HEAD1: n.first = s.next; n.w = W_ZERO; lab("first header"); emit(n); return;
    case W_ZERO: n.moved = 0; memset(n.page, 0, sizeof n.page); memset(n.value, 0, sizeof n.value); n.next = Head(); n.w = W_IDLE; lab("none are moved"); emit(n); return;
    case W_WRITTEN: n.w = W_PUB2; lab("the writer commits"); emit(n); n.w = W_IDLE; n.next = Head(); lab("the writer gives up"); emit(n); return;
    case W_PUB2: n.second = s.next; n.w = W_PUB1; lab("second header"); emit(n); return;
    case W_PUB1: n.first = s.next; n.next = Head(); n.w = W_IDLE; lab("first header: the commit is visible"); emit(n); return; }
  }
  // It copies the newest version up to `safe`, and then raises the number of moved frames.
  template <class F> void checkpoint(const S &s, F &&emit) const { S n = s;
    if (!s.ck) { u8 safe = s.first.mx; if (s.w == W_HEAD2 || s.w == W_HEAD1 || s.w == W_ZERO) return;
      for (const Reader &r : s.r) { if (r.open && r.zero) return; if (r.open && r.mx < safe) safe = r.mx; }
      if (safe <= s.moved) return;
      n.ck = 1; n.safe = safe; lab("a checkpoint begins, up to frame %d", safe); emit(n); return; }
    if (s.ck == 1) { for (int f = s.safe; f > s.moved; f--) if (s.page[f - 1]) { n.file = s.value[f - 1]; break; } n.ck = 2; lab("it writes the file: %d", n.file); emit(n); n = s; n.ck = n.safe = 0; lab("it is given up"); emit(n); return; }
    n.moved = s.safe; n.ck = n.safe = 0; lab("%d are moved", n.moved); emit(n); n = s; n.ck = n.safe = 0; lab("it is given up after the write"); emit(n); }
  // It takes all slots, so no reader is in a read, and ends the transactions that rest.
  template <class F> void gate(const S &s, F &&emit) const { S n = s;
    if (s.gate) { n.gate = 0; lab("the gate opens"); emit(n); return; }
    for (const Reader &r : s.r) if (r.open == READS) return;
    for (Reader &r : n.r) if (!m(M_GATE)) r = Reader();
    n.gate = 1; for (const Reader &r : n.r) if (r.open) n.bad = 4;
    lab("the gate is closed"); emit(n); }
  template <class F> void succ(const S &s, F &&emit) { if (s.bad) return; if (c.rests) gate(s, emit); for (int i = 0; i < NR; i++) reader(s, i, emit); writer(s, emit); checkpoint(s, emit); }
  const char *check(const S &s) { if (!s.bad || (m(V_REACH) && s.bad != 2) || (m(V_RESUMED) && s.bad != 5)) return nullptr; return bm[s.bad]; }
  const char *terminal(const S &) { return nullptr; }
};
int main(int argc, char **argv) {
  static const Cfg all[] = {{"pages of the file", true, false, false, 3, 0}, {"frames of the log", false, true, false, 3, 0}, {"readers that rest", true, true, true, 2, 0}};
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; bool file, log, rests; } mu[] = {{M_NO_MOVED, "the name lacks the moved frames", true}, {M_NO_SALTS, "the name lacks the generation", true}, {M_ONE_COPY, "one copy of the header is read", true}, {M_FLUX, "more moved frames than frames", true}, {M_FRAME_SALTS, "a frame's name lacks the generation", false, true}, {M_WRITER, "the writer puts in its frames", false, true}, {M_RESUME, "a reader continues after a commit", true, true, true}, {M_GATE, "the gate leaves readers that rest", true, true, true}, {M_LOG, "the log is searched after it was moved", true, true, true}, {M_AFTER, "the header is not compared afterwards", true, true, true}};
    int bad = 0; for (auto &u : mu) { M m({u.name, u.file, u.log, u.rests, 3, u.m}); MC<M> mc; Res r = mc.run(m); if (r.viol.empty()) { printf("%-40s SURVIVES\n", u.name); bad++; continue; } printf("%-40s KILLED: %s (%zu steps)\n", u.name, r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); fflush(stdout); }
    return bad; }
  bool reach = argc > 1 && !strcmp(argv[1], "reach"), bad = false;
  for (auto c : all) { if (reach && !c.file) continue; c.mut = !reach ? 0 : c.rests ? V_RESUMED : V_REACH; M m(c); MC<M> mc; Res r = mc.run(m); report(c.name, r, true); bad |= reach ? r.viol.empty() : !r.viol.empty() || !r.complete; }
  return bad;
}
