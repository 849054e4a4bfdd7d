// P2: ordered set (protocols.md section 1). One name in one document; messages delivered in any
// order, again and again. See README.md.
#include "mc.hpp"
#include <algorithm>
enum Mut : u32 { M_SEED = 1, M_NO_UNIQUE = 2, M_REC_FIRST = 4, M_MINLOW = 8, M_NO_DOCWM = 16, M_PERSOURCE = 32, M_TIE_REM = 64, M_NO_GUARD_SEQ = 128, M_DUP_IS_FAIL = 256, M_DROPDOC = 512, M_READ_WM = 1024, M_NO_TOMB = 2048, M_ACK_FIRST = 4096, M_WM_AFTER = 8192, M_PLAIN_NO_GUARD = 16384, M_CONVERT_BLIND = 32768, M_CONVERT_LISTS_ONLY = 65536 };
struct Msg { u8 add, seq, src; };
struct Cn { u8 pc, m, wm, shot; u8 sn[7]; };
struct S2 { u8 ex, cls, csrc, del, dsrc, wm; u8 acked, rec, applied, dups, docs, cpc, cwm, gwm; u8 low[3]; Cn c[3]; u8 crashes; u8 lost; u8 pl, vpc, vpl; u8 vsn[6]; };
static int PLAIN = 0; // the document holds the bare name at first: pl is 1 bare, 2 converted (number 0), 0 gone
enum { IDLE, HOLD, SH1, SH2, INSERT, LOOK, REC, ACK, CASW };
// 1: read, then a write guarded by the whole state; 2: lists only; 3: _wm only; 4: read, merged,
// and written in one step
static int CASMODE = 0;
static const char *bm[] = {"", "a second document for one key", "an entry came back after its removal (or is lost)", "an operation was dropped though no process applied it"};
struct P2 {
  typedef S2 S; u32 mut; std::vector<Msg> ms; int nc, dups; bool pipe, collect; S last; u8 bad = 0;
  bool M(u32 m) const { return mut & m; }
  void init(S &s) { s.dups = dups; if (PLAIN) s.ex = s.pl = 1; }
  // order: (seq, source), an exact tie: the add wins
  int rank(const Msg &m) const { return m.seq * 8 + m.src * 2 + (M(M_TIE_REM) ? !m.add : m.add); }
  int rk(int add, int seq, int src) const { return seq ? seq * 8 + src * 2 + (M(M_TIE_REM) ? !add : add) : 0; }
  int cur(const S &s) const { return s.ex ? std::max(rk(1, s.cls, s.csrc), rk(0, s.del, s.dsrc)) : 0; }
  int trueRank(const Msg &m) const { return m.seq * 8 + m.src * 2 + m.add; }
  void put(S &s, int i) const { const Msg &m = ms[i]; s.ex = 1; s.pl = (M(M_PLAIN_NO_GUARD) && s.pl == 1) ? 1 : 0; if (m.add) { s.cls = m.seq; s.csrc = m.src; s.del = s.dsrc = 0; } else { s.cls = s.csrc = 0; if (!M(M_NO_TOMB)) { s.del = m.seq; s.dsrc = m.src; } } s.applied |= 1 << i; }
  bool below(const S &s, const Msg &m, const Cn &c) const { if (M(M_NO_DOCWM)) return false; if (M(M_READ_WM)) return m.seq <= c.wm; return s.ex && m.seq <= s.wm; }
  bool settled(const S &s, int i) const { const Msg &m = ms[i]; return cur(s) >= trueRank(m); }
  template <class F> void succ(const S &s0, F &&emit0) {
    const S &s = s0; S n; auto emit = [&](S &x) { std::sort(x.c, x.c + nc, [](const Cn &a, const Cn &b) { return memcmp(&a, &b, sizeof a) < 0; }); emit0(x); };
    if (M(M_MINLOW)) { } 
    for (int k = 0; k < nc; k++) { const Cn &q = s.c[k]; int i = q.m; const Msg *m = &ms[i];
#define B n = s; Cn &x = n.c[k]; (void)x
      const char *nm = q.pc ? (m->add ? "add" : "remove") : "";
      switch (q.pc) {
      case IDLE: for (int j = 0; j < (int)ms.size(); j++) { bool re = s.acked >> j & 1; if (re && !s.dups) continue; B; if (re) n.dups--; x.pc = M(M_REC_FIRST) ? REC : M(M_ACK_FIRST) ? ACK : HOLD; x.m = j; x.wm = s.gwm; lab("a consumer gets %s %d/%d%s", ms[j].add ? "add" : "remove", ms[j].seq, ms[j].src, re ? " once more" : ""); emit(n); } break;
      case HOLD: case SH1: {
        if (CASMODE == 4) { B; if (s.ex && below(s, *m, q)) { if (!(s.applied >> i & 1)) n.lost = 1; lab("%s %d: below", nm, m->seq); } else if (settled(s, i)) { n.applied |= 1 << i; lab("%s %d: stale", nm, m->seq); } else { put(n, i); lab("%s %d merged inside the store", nm, m->seq); } x.pc = REC; emit(n); break; }
        if (CASMODE) { B; if (s.ex && below(s, *m, q)) { if (!(s.applied >> i & 1)) n.lost = 1; x.pc = REC; lab("%s %d: looked: below", nm, m->seq); } else if (settled(s, i)) { n.applied |= 1 << i; x.pc = REC; lab("%s %d: looked: stale", nm, m->seq); } else { x.pc = CASW; u8 v[7] = {s.ex, s.cls, s.csrc, s.del, s.dsrc, s.wm, s.pl}; memcpy(x.sn, v, 7); lab("%s %d: looked: open", nm, m->seq); } emit(n); break; }
        if (pipe) { // one atomic pipeline upsert keyed on the document key
          B; if (!s.ex) { x.pc = INSERT; lab("%s %d: no document: will insert", nm, m->seq); } else if (s.pl == 1 && !M(M_PLAIN_NO_GUARD)) { x.pc = LOOK; lab("%s %d: a bare name is stored: looks", nm, m->seq); } else { if (below(s, *m, q)) { lab("%s %d: at or below the watermark: dropped", nm, m->seq); if (!(s.applied >> i & 1)) n.lost = 1; } else if (cur(s) < rank(*m) || M(M_NO_GUARD_SEQ)) { put(n, i); lab("%s %d applied", nm, m->seq); } else { lab("%s %d stale", nm, m->seq); n.applied |= 1 << i; } x.pc = M(M_REC_FIRST) ? ACK : REC; } emit(n); break; }
        // shape 1: an entry of that name is in the list of the same kind with a lower sequence:
        // raise it in place
        B; bool same = m->add ? s.cls != 0 || s.pl == 2 : s.del != 0; bool bare = s.pl == 1 && !M(M_PLAIN_NO_GUARD); if (s.ex && !bare && same && !below(s, *m, q) && cur(s) < rank(*m)) { put(n, i); lab("%s %d raises the entry in place", nm, m->seq); x.pc = REC; } else { lab("%s %d: shape 1 does not match", nm, m->seq); x.pc = M(M_SEED) && q.shot ? REC : SH2; if (M(M_SEED) && q.shot) n.applied |= 1 << i; } emit(n); break; }
      case CASW: { B; u8 v[7] = {s.ex, s.cls, s.csrc, s.del, s.dsrc, s.wm, s.pl}; bool same = v[0] == q.sn[0] && (CASMODE == 3 || v[6] == q.sn[6]) && (CASMODE == 3 || !memcmp(v + 1, q.sn + 1, 4)) && (CASMODE == 2 || v[5] == q.sn[5]);
        memset(x.sn, 0, 7); if (same) { put(n, i); x.pc = REC; lab("%s %d: guarded write lands", nm, m->seq); } else { x.pc = HOLD; lab("%s %d: changed in the meantime: again", nm, m->seq); } emit(n); break; }
      case SH2: { B; bool same = m->add ? s.cls != 0 || s.pl == 2 : s.del != 0; bool bare = s.pl == 1 && !M(M_PLAIN_NO_GUARD); if (!s.ex) { x.pc = INSERT; lab("%s %d: upsert finds no document", nm, m->seq); } else if (!bare && !same && !below(s, *m, q) && cur(s) < rank(*m)) { put(n, i); lab("%s %d moves or adds the entry", nm, m->seq); x.pc = REC; } else { x.pc = INSERT; lab("%s %d: upsert's guard does not match", nm, m->seq); } emit(n); break; }
      case INSERT: { B; if (s.ex && !M(M_NO_UNIQUE)) { lab("%s %d: insert refused by the unique index: looks again", nm, m->seq); x.pc = M(M_DUP_IS_FAIL) ? REC : LOOK; if (M(M_DUP_IS_FAIL)) n.applied |= 1 << i; } else { if (s.ex) n.docs = 2; if (below(s, *m, q)) { } put(n, i); lab("%s %d inserts the document", nm, m->seq); x.pc = REC; } emit(n); break; }
      case LOOK: { B; if (M(M_SEED)) { if (q.shot) { x.pc = REC; n.applied |= 1 << i; } else { x.shot = 1; x.pc = SH1; } lab("%s %d: follow-up", nm, m->seq); emit(n); break; }
        if (below(s, *m, q)) { lab("%s %d: at or below the watermark: dropped", nm, m->seq); if (!(s.applied >> i & 1)) n.lost = 1; x.pc = REC; } else if (settled(s, i)) { lab("%s %d: an equal or newer entry is stored", nm, m->seq); n.applied |= 1 << i; x.pc = REC; } else if (PLAIN && s.pl == 1 && !M(M_PLAIN_NO_GUARD)) { x.pc = CASW; u8 v[7] = {s.ex, s.cls, s.csrc, s.del, s.dsrc, s.wm, s.pl}; memcpy(x.sn, v, 7); lab("%s %d: merges it with the bare name", nm, m->seq); } else { lab("%s %d: not settled: again", nm, m->seq); x.pc = HOLD; } emit(n); break; }
      case REC: { B; n.rec |= 1 << i; lab("%s %d recorded as applied", nm, m->seq); x.pc = M(M_REC_FIRST) ? HOLD : M(M_ACK_FIRST) ? IDLE : ACK; if (x.pc == IDLE) memset(&x, 0, sizeof x); emit(n); break; }
      case ACK: { B; n.acked |= 1 << i; lab("%s %d acknowledged", nm, m->seq); if (M(M_ACK_FIRST)) x.pc = HOLD; else memset(&x, 0, sizeof x); if (M(M_MINLOW)) n.low[0] = 0; emit(n); break; }
      }
      if (q.pc) { B; memset(&x, 0, sizeof x); lab("the consumer of %s %d/%d crashes", nm, m->seq, m->src); emit(n); }
    }
    // truce set convert: read, then a write guarded by the whole state; may stop between the two
    // for ever
    if (PLAIN == 2) {
      u8 v[6] = {s.ex, s.cls, s.csrc, s.del, s.dsrc, s.wm};
      if (s.vpc == 0 && s.pl == 1) { n = s; n.vpc = 1; n.vpl = s.pl; memcpy(n.vsn, v, 6); lab("the converter looks: a bare name"); emit(n); }
      if (s.vpc == 1) { n = s; bool same = s.pl == s.vpl && !memcmp(v, s.vsn, M(M_CONVERT_LISTS_ONLY) ? 5 : 6); n.vpc = 2; n.vpl = 0; memset(n.vsn, 0, 6);
        /* the elements that it did not read are not compared */
        if (M(M_CONVERT_LISTS_ONLY)) same = !memcmp(v, s.vsn, 5);
        if (same || M(M_CONVERT_BLIND)) { n.ex = 1; if (s.vsn[1] || s.vsn[3]) n.pl = 0; else n.pl = 2; if (M(M_CONVERT_BLIND)) { n.cls = s.vsn[1]; n.csrc = s.vsn[2]; n.del = s.vsn[3]; n.dsrc = s.vsn[4]; } lab("the converter writes"); } else lab("the converter finds another state"); emit(n); }
    }
    if (collect) {
      if (s.cpc == 0 && s.ex) { // read the records: longest prefix of the union, per source; then the minimum over sources
        int wmA[2] = {0, 0}; bool src[2] = {0, 0}; for (auto &m : ms) src[m.src] = true;
        for (int z = 0; z < 2; z++) for (int q = 1; q <= 8; q++) { bool all = true, any = false; for (int i = 0; i < (int)ms.size(); i++) if (ms[i].src == z && ms[i].seq == q) { any = true; if (!(s.rec >> i & 1)) all = false; } if (any && all) wmA[z] = q; else break; }
        int wm = src[1] ? std::min(wmA[0], wmA[1]) : wmA[0]; if (M(M_PERSOURCE)) wm = wmA[0];
        if (M(M_MINLOW)) { wm = 0; for (int i = 0; i < (int)ms.size(); i++) if (s.rec >> i & 1) wm = std::max<int>(wm, ms[i].seq); bool two = __builtin_popcount(s.rec) >= nc; if (!two) wm = 0; else { wm = 9; int cnt = 0; for (int i = (int)ms.size() - 1; i >= 0 && cnt < nc; i--) if (s.rec >> i & 1) { wm = std::min<int>(wm, ms[i].seq); cnt++; } } }
        if (wm > s.cwm && wm > s.wm) { n = s; n.cpc = 1; n.cwm = wm; lab("the collector reads the records: watermark %d", wm); emit(n); } }
      if (s.cpc == 1) { n = s; n.cpc = 0; if (n.gwm < s.cwm) n.gwm = s.cwm; if (n.ex) { if (n.del && n.del <= s.cwm) n.del = n.dsrc = 0; if (n.wm < s.cwm) n.wm = s.cwm; if (M(M_DROPDOC) && !n.del && !n.cls) n.ex = 0, n.wm = 0; } lab("the collector drops tombstones up to %d%s", s.cwm, n.ex ? "" : " and the empty document"); emit(n); }
    }
  }
  const char *check(const S &s) {
    if (s.docs == 2) return bm[1]; if (s.lost) return bm[3];
    int best = -1; for (int i = 0; i < (int)ms.size(); i++) if (s.applied >> i & 1) if (best < 0 || trueRank(ms[i]) > trueRank(ms[best])) best = i;
    bool here = s.ex && s.cls; if (best >= 0) { if (s.pl || (ms[best].add ? !(here && s.cls == ms[best].seq) : here)) return bm[2]; } else if (here || (PLAIN && !s.pl)) return bm[2];
    return nullptr;
  }
  const char *terminal(const S &) { return nullptr; }
};
static Res go(const char *nm, std::vector<Msg> ms, u32 mut, bool pipe, bool collect, int nc, int dups, bool tr = true, bool quiet = false) { P2 m; m.mut = mut; m.ms = ms; m.pipe = pipe; m.collect = collect; m.nc = nc; m.dups = dups; MC<P2> mc; Res r = mc.run(m, 80000000); if (!quiet) report(nm, r, tr); return r; }
// The document holds the bare name at first; all patterns of four messages. pipe, or the two
// classic shapes; how: CASMODE
static bool plain(const char *nm, u32 mut, bool pipe, int how, int nc, int dups, int plain_mode) {
  u64 tot = 0; CASMODE = how; PLAIN = plain_mode;
  for (int k = 0; k < 16; k++) { std::vector<Msg> v; for (int i = 0; i < 4; i++) v.push_back({(u8)(k >> i & 1), (u8)(i + 1), 0});
    Res r = go("", v, mut, pipe, true, nc, dups, false, true); tot += r.n; if (!r.viol.empty() || !r.complete) { report(nm, r, true); CASMODE = PLAIN = 0; return false; } }
  printf("%-58s OK (complete)  states %llu\n", nm, (unsigned long long)tot); fflush(stdout); CASMODE = PLAIN = 0; return true;
}
static void plain_names() {
  plain("bare name: classic shapes, converter", 0, false, 0, 2, 1, 2); plain("bare name: pipeline, converter", 0, true, 0, 2, 1, 2);
  plain("bare name: look + guarded write, converter", 0, false, 1, 2, 1, 2); plain("bare name: merged inside the store, converter", 0, false, 4, 2, 1, 2);
  plain("mutant: classic shapes next to a bare name", M_PLAIN_NO_GUARD, false, 0, 2, 1, 2); plain("mutant: pipeline next to a bare name", M_PLAIN_NO_GUARD, true, 0, 2, 1, 2);
  plain("mutant: the converter's write has no guard", M_CONVERT_BLIND, false, 4, 2, 1, 2);
  plain("mutant: the converter compares the numbered alone", M_CONVERT_LISTS_ONLY, false, 4, 2, 1, 2);
}
int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "plain")) { plain_names(); return 0; }
  std::vector<Msg> arar = {{1, 1, 0}, {0, 2, 0}, {1, 3, 0}, {0, 4, 0}}, tie = {{1, 1, 0}, {0, 2, 0}, {1, 2, 0}, {0, 3, 0}};
  std::vector<Msg> two = {{1, 1, 0}, {0, 2, 0}, {1, 1, 1}, {1, 2, 1}}, two2 = {{1, 1, 0}, {0, 2, 0}, {0, 1, 1}, {1, 1, 1}};
  CASMODE = 1; u64 tot = 0; bool ok = true; for (int k = 0; k < 16; k++) { std::vector<Msg> v; for (int i = 0; i < 4; i++) v.push_back({(u8)(k >> i & 1), (u8)(i + 1), 0}); Res r = go("", v, 0, false, true, 2, 1, false, true); tot += r.n; if (!r.viol.empty() || !r.complete) { ok = false; report("kinds", r, true); } } printf("look + guarded write, 16 patterns, 2 consumers: %s %llu states\n", ok ? "OK (complete)" : "FAILED", (unsigned long long)tot);
  go("cas, 3 consumers, collector", arar, 0, false, true, 3, 1); go("cas, tie", tie, 0, false, true, 3, 1); go("cas, two sources", two, 0, false, true, 3, 1); go("cas, two sources, tie", two2, 0, false, true, 3, 1);
  CASMODE = 4; tot = 0; ok = true; for (int k = 0; k < 16; k++) { std::vector<Msg> v; for (int i = 0; i < 4; i++) v.push_back({(u8)(k >> i & 1), (u8)(i + 1), 0}); Res r = go("", v, 0, false, true, 3, 1, false, true); tot += r.n; if (!r.viol.empty() || !r.complete) { ok = false; report("kinds", r, true); } } printf("merged inside the store, 16 patterns, 3 consumers: %s %llu states\n", ok ? "OK (complete)" : "FAILED", (unsigned long long)tot);
  go("inside, tie", tie, 0, false, true, 3, 1); go("inside, two sources", two, 0, false, true, 3, 1); go("inside, two sources, tie", two2, 0, false, true, 3, 1); go("mutant: inside, _wm not looked at", arar, M_NO_DOCWM, false, true, 3, 1);
  CASMODE = 2; go("mutant: _wm not in the guard", arar, 0, false, true, 3, 1); CASMODE = 3; go("mutant: lists not in the guard", arar, 0, false, true, 3, 1);
}
