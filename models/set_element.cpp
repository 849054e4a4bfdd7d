// The ordered set in the layout by element: one document for each name, tombstones collected by
// proof, the guard in a document of the key. One name; messages in any order, again and again; any
// process stops anywhere; calls land late. See README.md.
#include "mc.hpp"
#include <algorithm>
enum Mut : u32 { M_NO_GUARD = 1, M_GUARD_BEFORE = 2, M_NO_PROOF = 4, M_TOMB_FIRST = 8, M_PROVE_BLIND = 16, M_GUARD_LOOKED_FIRST = 32, M_WITHDRAW_BLIND = 64, M_UNPROVED_SEEN = 128, M_PROOF_INHERITED = 256, M_DELETE_BLIND = 512, M_NO_ID = 1024 };
struct Msg { u8 add, seq; };
struct Doc { u8 ex, add, seq, proved, id; }; // id: 1 is the one that is stored, 2 another; each insert makes one
struct Cn { u8 pc, m, g; };
struct Col { u8 pc, w, g; Doc seen; };
struct S3 { Doc d; u8 guard, rec, acked, applied, dups, lost; Cn c[3]; Col k[2]; Doc late; u8 lateleft, lateon; };
enum { IDLE, SEND, GUARD, WITHDRAW, REC, ACK };
struct P {
  typedef S3 S; u32 mut; std::vector<Msg> ms; int nc, nk, dups, lates; S last;
  bool M(u32 m) const { return mut & m; }
  void init(S &s) { s.dups = dups; s.lateleft = lates; }
  int rank(u8 add, u8 seq) const { return seq * 2 + add; }
  int watermark(const S &s) const { int w = 0; for (int q = 1; q <= 6; q++) { bool any = false, all = true; for (int i = 0; i < (int)ms.size(); i++) if (ms[i].seq == q) { any = true; if (!(s.rec >> i & 1)) all = false; } if (!any || !all) break; w = q; } return w; }
  bool visible(const S &s) const { return s.d.ex && s.d.add && (s.d.proved || s.d.seq > s.guard || M(M_UNPROVED_SEEN)); }
  // the guarded upsert: 1 inserted, 2 replaced, 0 the stored entry has at least its rank
  int upsert(S &n, const Msg &m) const {
    if (!n.d.ex) { n.d = Doc{1, m.add, m.seq, (u8)(M(M_NO_GUARD) ? 1 : 0), 3}; return 1; }
    if (rank(n.d.add, n.d.seq) >= rank(m.add, m.seq)) return 0;
    n.d = Doc{1, m.add, m.seq, (u8)(M(M_PROOF_INHERITED) ? 1 : 0), n.d.id}; return 2;
  }
  // it only matters whether a collector saw the stored element; a document that no process reads
  // any more counts as nothing
  void canonical(S &x) const {
    for (int k = 0; k < nk; k++) { Col &q = x.k[k]; if (q.pc != 2 && q.pc != 3) memset(&q.seen, 0, sizeof q.seen); if (q.pc != 3 && !M(M_GUARD_LOOKED_FIRST)) q.g = 0; if (q.seen.ex) q.seen.id = x.d.ex && q.seen.id == x.d.id ? 1 : 2; }
    if (x.d.ex) x.d.id = 1;
    for (int k = 0; k < nc; k++) if (!M(M_GUARD_BEFORE)) x.c[k].g = 0;
  }
  template <class F> void succ(const S &s, F &&emit0) {
    S n; auto emit = [&](S &x) { canonical(x); std::sort(x.c, x.c + nc, [](const Cn &a, const Cn &b) { return memcmp(&a, &b, sizeof a) < 0; }); std::sort(x.k, x.k + nk, [](const Col &a, const Col &b) { return memcmp(&a, &b, sizeof a) < 0; }); emit0(x); };
#define B n = s; Cn &x = n.c[k]; (void)x
    for (int k = 0; k < nc; k++) { const Cn &q = s.c[k]; const Msg *m = &ms[q.m]; int i = q.m; const char *nm = q.pc ? (m->add ? "add" : "remove") : "";
      switch (q.pc) {
      case IDLE: for (int j = 0; j < (int)ms.size(); j++) { bool re = s.acked >> j & 1; if (re && !s.dups) continue; B; if (re) n.dups--; x = Cn{SEND, (u8)j, s.guard}; lab("a consumer gets %s %d%s", ms[j].add ? "add" : "remove", ms[j].seq, re ? " once more" : ""); emit(n); } break;
      case SEND: { { B; int r = upsert(n, *m); if (M(M_GUARD_BEFORE) && r == 1) { if (m->seq <= q.g) { n.d = s.d; x.pc = REC; } else { n.d.proved = 1; x.pc = REC; n.applied |= 1 << i; } lab("%s %d: %s, the guard was read before", nm, m->seq, x.pc == REC ? "done" : ""); emit(n); break; }
          x.pc = r == 1 && !M(M_NO_GUARD) ? GUARD : REC; if (r != 1 || m->seq > s.guard || M(M_NO_GUARD)) n.applied |= 1 << i; lab("%s %d %s", nm, m->seq, r == 1 ? "inserted" : r == 2 ? "replaces the stored entry" : "is stale"); emit(n); }
        if (s.lateleft && !s.lateon) { B; n.lateleft--; n.lateon = 1; n.late = Doc{1, m->add, m->seq, 0, 0}; lab("%s %d sent, no answer: sends again", nm, m->seq); emit(n); }
        break; }
      case GUARD: { B; if (m->seq <= s.guard) { x.pc = WITHDRAW; lab("%s %d: the guard is at %d: below", nm, m->seq, s.guard); if (!(s.applied >> i & 1)) n.lost = 1; } else { x.pc = REC; lab("%s %d: the guard is at %d: applied", nm, m->seq, s.guard); } emit(n); break; }
      case WITHDRAW: { B; if (s.d.ex && (M(M_WITHDRAW_BLIND) || (s.d.add == m->add && s.d.seq == m->seq && !s.d.proved))) { memset(&n.d, 0, sizeof n.d); lab("%s %d withdrawn", nm, m->seq); } else lab("%s %d: nothing to withdraw", nm, m->seq); x.pc = REC; emit(n); break; }
      case REC: { B; n.rec |= 1 << i; x.pc = ACK; lab("%s %d recorded", nm, m->seq); emit(n); break; }
      case ACK: { B; n.acked |= 1 << i; memset(&x, 0, sizeof x); lab("%s %d acknowledged", nm, m->seq); emit(n); break; }
      }
      if (q.pc) { B; memset(&x, 0, sizeof x); lab("the consumer of %s %d crashes", nm, m->seq); emit(n); }
    }
    if (s.lateon) { n = s; Msg m{s.late.add, s.late.seq}; int r = upsert(n, m); n.lateon = 0; memset(&n.late, 0, sizeof n.late); if (r == 2 || (r == 1 && m.seq > s.guard)) for (int i = 0; i < (int)ms.size(); i++) if (ms[i].seq == m.seq && ms[i].add == m.add) n.applied |= 1 << i; lab("the late %s %d lands: %s", m.add ? "add" : "remove", m.seq, r == 1 ? "inserted" : r == 2 ? "replaces" : "stale"); emit(n); }
#undef B
#define B n = s; Col &x = n.k[k]; (void)x
    for (int k = 0; k < nk; k++) { const Col &q = s.k[k];
      switch (q.pc) {
      case 0: { int w = watermark(s); if (w) { B; x = Col{1, (u8)w, 0, {0, 0, 0, 0, 0}}; if (M(M_GUARD_LOOKED_FIRST)) x.g = s.guard; lab("a collector computes watermark %d", w); emit(n); } break; }
      case 1: { B; x.seen = s.d; x.pc = M(M_NO_PROOF) ? (M(M_TOMB_FIRST) ? 5 : 4) : M(M_GUARD_LOOKED_FIRST) ? 3 : 2; lab("the collector of %d looks at the documents", q.w); emit(n); break; }
      case 2: { B; x.g = s.guard; x.pc = 3; lab("the collector of %d reads the guard: %d", q.w, s.guard); emit(n); break; }
      case 3: { B; x.pc = M(M_TOMB_FIRST) ? 5 : 4; const Doc &v = q.seen; bool same = s.d.ex == v.ex && s.d.add == v.add && s.d.seq == v.seq && s.d.proved == v.proved && (s.d.id == v.id || M(M_NO_ID));
        if (v.ex && !v.proved && v.add && v.seq <= q.w) { if (v.seq <= q.g) { if (same || (M(M_DELETE_BLIND) && s.d.ex)) memset(&n.d, 0, sizeof n.d); lab("the collector of %d removes what is below the guard", q.w); } else if (same || (M(M_PROVE_BLIND) && s.d.ex)) { n.d.proved = 1; lab("the collector of %d proves %d", q.w, v.seq); } else { x.pc = 1; lab("the collector of %d: it changed in the meantime", q.w); } } else lab("the collector of %d has nothing to prove", q.w);
        if (x.pc != 1) memset(&x.seen, 0, sizeof x.seen); emit(n); break; }
      case 4: { B; if (n.guard < q.w) n.guard = q.w; if (M(M_TOMB_FIRST)) memset(&x, 0, sizeof x); else x.pc = 5; lab("the collector raises the guard to %d", n.guard); emit(n); break; }
      case 5: { B; if (s.d.ex && !s.d.add && s.d.seq <= q.w) memset(&n.d, 0, sizeof n.d); if (M(M_TOMB_FIRST)) x.pc = 4; else memset(&x, 0, sizeof x); lab("the collector of %d removes tombstones", q.w); emit(n); break; }
      }
      if (q.pc) { B; memset(&x, 0, sizeof x); lab("the collector of %d crashes", q.w); emit(n); }
    }
  }
  const char *check(const S &s) {
    if (s.lost) return "an operation was dropped though no process applied it";
    int best = -1; for (int i = 0; i < (int)ms.size(); i++) if (s.applied >> i & 1) if (best < 0 || rank(ms[i].add, ms[i].seq) > rank(ms[best].add, ms[best].seq)) best = i;
    bool wanted = best >= 0 && ms[best].add; if (visible(s) != wanted || (wanted && s.d.seq != ms[best].seq)) return wanted ? "a member is lost" : "an entry came back after its removal";
    return nullptr;
  }
  const char *terminal(const S &) { return nullptr; }
};
static bool go(const char *nm, u32 mut, int nc, int nk, int dups, int lates, int messages) {
  u64 tot = 0; for (int k = 0; k < 1 << messages; k++) { std::vector<Msg> v; for (int i = 0; i < messages; i++) v.push_back({(u8)(k >> i & 1), (u8)(i + 1)});
    P m; m.mut = mut; m.ms = v; m.nc = nc; m.nk = nk; m.dups = dups; m.lates = lates; MC<P> mc; Res r = mc.run(m, 120000000); tot += r.n;
    if (!r.viol.empty() || !r.complete) { report(nm, r, true); return false; } }
  printf("%-58s OK (complete)  states %llu\n", nm, (unsigned long long)tot); fflush(stdout); return true;
}
int main(int argc, char **) {
  go("2 consumers, a collector, late calls, 3 messages", 0, 2, 1, 1, 1, 3); go("2 consumers, 2 collectors, late calls, 2 messages", 0, 2, 2, 2, 1, 2); go("1 consumer, a collector, 4 messages", 0, 1, 1, 2, 0, 4);
  if (argc > 1) { go("2 consumers, 2 collectors, 3 messages", 0, 2, 2, 1, 0, 3); go("3 consumers, a collector, 3 messages", 0, 3, 1, 1, 0, 3); }
  go("mutant: tombstones go, and there is no guard", M_NO_GUARD, 2, 1, 2, 0, 3); go("mutant: the guard is read before the insert", M_GUARD_BEFORE, 2, 1, 2, 0, 3);
  go("mutant: the guard rises, and members are not proved", M_NO_PROOF, 2, 1, 2, 0, 3); go("mutant: tombstones go before the guard rises", M_TOMB_FIRST, 2, 1, 2, 0, 3);
  go("mutant: proved without comparing", M_PROVE_BLIND, 2, 2, 2, 1, 2); go("mutant: the guard is looked at before the documents", M_GUARD_LOOKED_FIRST, 2, 2, 2, 1, 2);
  go("mutant: readers do not compare the guard", M_UNPROVED_SEEN, 2, 1, 2, 0, 3); go("mutant: what replaces is proved", M_PROOF_INHERITED, 2, 1, 2, 1, 3);
  go("mutant: another element of the same number is proved", M_NO_ID, 2, 2, 2, 1, 2);
  go("mutant: withdrawn without comparing", M_WITHDRAW_BLIND, 2, 1, 2, 0, 3); go("mutant: removed below the guard without comparing", M_DELETE_BLIND, 2, 2, 2, 1, 2);
}
