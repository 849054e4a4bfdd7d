// The release of a document of a decided commit (src/commit/journal_release.c), next to plain
// writers. A value that a plain writer wrote under the intent is merged with the change. Otherwise
// it is saved BEFORE the write that replaces it, or noted in the commit before that, even if
// processes die anywhere. A document that is too large for a comparison is always noted before its
// write. The releaser removes its own note if the write replaced no plain write. The releasers are
// the owner, which knows the document as it took it, and two processes that encounter the intent.
// README.md explains the results.
#include "mc.hpp"
enum { NR = 3, NP = 3, TRIES = 2 };
// The kinds of plain writers. SET writes the field of the change, ADD a field that merges with it,
// and BACK the field as it was. WAY moves the stored entry into the way of the change, and AWAY
// moves it out.
enum Kind { SET = 1, ADD, BACK, WAY, AWAY, REPLACE, REMOVE };
enum Mut : u32 {
  M_NOTE_AFTER = 1,   // the note is made after the write, of the value that it found
  M_NO_COMPARE = 2,   // a value that was read and was right is overwritten without a comparison
  M_OWNER_FREE = 4,   // the owner does not compare
  M_KEEP_AFTER = 8,   // a lost value is saved after the write
  M_KEEP_ONCE = 16,   // only the value that was saved first is saved
  M_MERGE_FREE = 32,  // the merged write does not compare
  M_MERGE_NOT = 64,   // the change overwrites values that would merge with it
  M_ENDLESS = 128,    // after a failed comparison it compares again, as often as it takes
  M_KEEP_WAY = 256,   // only the obstacle is saved
  M_UNNOTE_LOST = 512,    // the note is removed whatever the write replaced
  M_UNNOTE_ALL = 1024,    // the notes of other releasers are removed too
  M_UNNOTE_LATE = 2048,   // the note is removed although the write got no reply
  M_UNNOTE_FORCED = 4096, // a forced write that replaced what was not read removes its note
  M_UNNOTE_MISSED = 8192, // a releaser that finds no intent removes the notes of all
  M_FORCE_BARE = 16384,   // a forced write of a large document is not noted
  M_NOTE_STAYS = 32768,   // no note is removed
  V_REACH = 1u << 30,
};
// odd: the store's comparison never holds; large: the document cannot be compared
struct Cfg { std::string name; int plain[NP]; int crashes, lates; u32 mut; bool odd, large; };
// set, add: the fields of plain writers under the intent, one bit each; way: the entry in the way
struct Doc { u8 ex, it, set, add, way; };
// force: the store refused the change; again: the release continues after its note is removed
struct Rel { u8 pc, dead, tries, known, free, force, again; Doc saw; };
// note: one bit for each releaser, and STALE for notes that no releaser knows any more. over: plain
// writes that a write replaced, and OTHER for a state that was not read
enum { STALE = 1 << NR, OTHER = 1 << NP };
struct St { Doc d; Rel r[NR]; u8 p[NP]; u8 note, kept, over, done, crashes, lates, bad; struct { u8 on, kind, free; Doc saw; } z; };
enum { LOOK, TRY, NOTE, WRITE, TELL, REPORT, UNNOTE, KEEP, KEEPS, MERGE, END };
static const char *bm[] = {"", "a plain write was overwritten, and no process reports it", "the obstacle is lost", "the document is held for ever", "reported a plain write that never was", "REACHED", "a release does not end", "a note remains, although no plain write was overwritten"};
struct M {
  typedef St S; Cfg cfg; St last; M(const Cfg &c) : cfg(c) {}
  bool m(u32 x) const { return cfg.mut & x; }
  void init(S &s) { s.d.ex = s.d.it = 1; s.crashes = cfg.crashes; s.lates = cfg.lates; for (int i = 0; i < NR; i++) s.r[i].pc = LOOK; s.r[0].pc = cfg.large ? NOTE : TRY; s.r[0].known = 1; s.r[0].saw = s.d; s.r[0].free = m(M_OWNER_FREE); }
  static bool same(const Doc &a, const Doc &b) { return a.ex == b.ex && a.it == b.it && a.set == b.set && a.add == b.add && a.way == b.way; }
  static bool was(const Doc &a) { return a.set || a.add || a.way; }
  static int lost(const Doc &a) { return a.set | (a.way ? 1 << (a.way - 1) : 0); }
  // the write of the release, field by field; false: refused by the stored entry in the way. *hit:
  // it found the document
  bool write(S &n, const Doc &saw, bool compare, bool *hit) const { Doc &d = n.d; *hit = false;
    if (!d.ex || !d.it || (compare && (cfg.odd || !same(d, saw)))) return true;
    if (d.way) return false;
    *hit = true; if (!m(M_NOTE_AFTER)) n.over |= d.set | d.add;
    d.it = d.set = d.add = 0; return true; }
  // the whole document, made of the read one and the change
  void merge(S &n, const Doc &saw, bool compare) const { Doc &d = n.d; if (!d.ex || !d.it || (compare && (cfg.odd || !same(d, saw)))) return;
    if (!m(M_KEEP_AFTER)) n.over |= lost(d);
    n.over |= (m(M_MERGE_NOT) ? d.add : d.add & ~saw.add) | (same(d, saw) ? 0 : OTHER);
    d.it = d.way = d.set = 0; d.add = saw.add; }
  // A releaser that ends, or that tries again, removes its note first, if it may.
  void unnote(Rel &r, bool again) const { r.pc = m(M_NOTE_STAYS) ? (again ? LOOK : END) : UNNOTE; r.again = again; }
  // The write gets no reply, and may take effect later. Its note stays.
  template <class F> void late(const S &s, int i, bool kind, bool free, F &&emit) const { if (!s.lates || s.z.on) return; S n = s; const Rel &q = s.r[i];
    n.lates--; n.z.on = 1; n.z.kind = kind; n.z.free = free; n.z.saw = q.saw; n.r[i].pc = LOOK;
    if (n.note >> i & 1) { n.note &= ~(1 << i); if (!m(M_UNNOTE_LATE)) n.note |= STALE; }
    lab("R%d: no answer", i); emit(n); }
  void end(S &n, int i) const { Rel &r = n.r[i]; bool dead = r.dead; r = Rel(); r.dead = dead; r.pc = END; if (!i) n.done = 1; }
  template <class F> void succ(const S &s, F &&emit) { S n;
    for (int i = 0; i < NR; i++) { const Rel &q = s.r[i]; if (q.dead || q.pc == END) continue;
      if (s.crashes && i < NR - 1) { n = s; n.crashes--; n.r[i] = Rel(); n.r[i].pc = END; n.r[i].dead = 1; lab("R%d dies", i); emit(n);
        if (m(M_NOTE_AFTER) && q.pc == TELL && !s.note && was(q.saw)) { n.bad = 1; emit(n); }
        if (m(M_KEEP_AFTER) && q.pc == KEEPS) { n.bad = 2; emit(n); } }
      n = s; Rel &r = n.r[i]; bool hit = false;
      switch (q.pc) {
      case LOOK: if (!s.d.ex || !s.d.it) { end(n, i); lab("R%d: it is released", i); emit(n); break; }
        r.saw = s.d; r.free = m(M_NO_COMPARE) || m(M_NOTE_AFTER); r.pc = m(M_NOTE_AFTER) ? TRY : !was(s.d) ? TRY : lost(s.d) && !m(M_KEEP_AFTER) ? KEEP : MERGE;
        if (m(M_KEEP_WAY) && !s.d.way && was(s.d)) r.pc = MERGE;
        if (q.tries >= TRIES && !m(M_ENDLESS)) r.pc = NOTE;
        if (s.d.way) r.pc = m(M_KEEP_AFTER) ? MERGE : KEEP;
        if (cfg.large) r.pc = !q.force ? NOTE : lost(s.d) && !m(M_KEEP_AFTER) ? KEEP : m(M_FORCE_BARE) ? MERGE : NOTE;
        lab("R%d looks: set %x add %x way %d", i, s.d.set, s.d.add, s.d.way); emit(n); break;
      case TRY: { Doc before = s.d; bool ok = write(n, q.saw, !q.free, &hit);
        if (!ok) { r.pc = LOOK; lab("R%d releases: refused", i); }
        else if (hit && m(M_NOTE_AFTER)) { r.saw = before; r.pc = TELL; if (!was(before)) end(n, i); lab("R%d releases", i); }
        else if (hit || q.free) { end(n, i); lab("R%d releases", i); }
        else { r.pc = LOOK; r.known = 0; r.tries = q.tries + (q.tries < 4); lab("R%d: it is not as it was", i); }
        emit(n); late(s, i, false, q.free, emit); break; }
      case NOTE: n.note |= 1 << i; r.pc = q.force ? MERGE : WRITE; lab("R%d notes it", i); emit(n); break;
      case WRITE: { Doc before = s.d; bool ok = write(n, q.saw, false, &hit); r.force = !ok && cfg.large;
        if (hit && was(before) && !m(M_UNNOTE_LOST)) { r.saw = before; r.pc = REPORT; } else unnote(r, !ok);
        if (ok && !hit && m(M_UNNOTE_MISSED)) n.note = 0;
        lab("R%d releases%s", i, !ok ? ": refused" : hit ? "" : ": there is no intent"); emit(n); late(s, i, false, true, emit); break; }
      case REPORT: n.kept |= lost(q.saw) | q.saw.add; end(n, i); lab("R%d keeps what it replaced", i); emit(n); break;
      case UNNOTE: n.note &= m(M_UNNOTE_ALL) ? 0 : ~(1 << i); if (q.again) r.pc = LOOK; else end(n, i); lab("R%d removes its note", i); emit(n); break;
      case TELL: n.note |= 1 << i; end(n, i); lab("R%d notes it now", i); emit(n); break;
      case KEEP: if (!m(M_KEEP_ONCE) || !s.kept) n.kept |= lost(q.saw); r.pc = cfg.large && !m(M_FORCE_BARE) ? NOTE : MERGE; lab("R%d keeps what would be lost (%x)", i, lost(q.saw)); emit(n); break;
      case MERGE: if (cfg.large) { bool there = s.d.ex && s.d.it; merge(n, q.saw, false);
          if (there && !same(s.d, q.saw) && !m(M_UNNOTE_FORCED)) end(n, i); else if (s.note >> i & 1) unnote(r, false); else end(n, i);
          lab("R%d releases what it merged, without a comparison", i); emit(n); late(s, i, true, true, emit); break; }
        if ((cfg.odd || !same(s.d, q.saw)) && !(m(M_MERGE_FREE) && s.d.ex && s.d.it)) { r.pc = LOOK; r.tries = q.tries + (q.tries < 4); lab("R%d: it is not as it was, merged", i); emit(n); break; }
        merge(n, q.saw, !m(M_MERGE_FREE)); end(n, i); if (m(M_KEEP_AFTER) && lost(q.saw)) { n.r[i] = q; n.r[i].pc = KEEPS; } lab("R%d releases what it merged", i); emit(n);
        late(s, i, true, false, emit); break;
      case KEEPS: n.kept |= lost(q.saw); end(n, i); lab("R%d keeps what was lost", i); emit(n); break;
      } }
    for (int p = 0; p < NP; p++) { if (s.p[p] || !cfg.plain[p]) continue; n = s; n.p[p] = 1; Doc &d = n.d;
      if (d.ex) switch (cfg.plain[p]) {
        case SET: if (d.it) { d.set = 1 << p; d.add = 0; } break; case ADD: if (d.it) d.add |= 1 << p; break; case BACK: d.set = d.add = 0; break;
        case WAY: if (d.it) d.way = p + 1; break; case AWAY: d.way = 0; break;
        case REPLACE: d = Doc(); d.ex = 1; break; case REMOVE: d = Doc(); break; }
      lab("plain writer P%d", p); emit(n); }
    if (s.z.on) { n = s; n.z.on = 0; n.z.kind = n.z.free = 0; n.z.saw = Doc(); bool hit;
      if (s.z.kind) merge(n, s.z.saw, !s.z.free);
      else write(n, s.z.saw, !s.z.free, &hit);
      lab("the unanswered write lands"); emit(n); }
  }
  const char *check(const S &s) { if (m(V_REACH)) return s.note && s.kept && s.done && s.d.ex && !s.d.it ? bm[5] : nullptr;
    int over = s.over & ~s.kept;
    if (s.bad) return bm[s.bad];
    if (over && !s.note) { for (int p = 0; p < NP; p++) if (over >> p & 1 && cfg.plain[p] == WAY) return bm[2]; return bm[1]; }
    return s.note && !writes() && !cfg.large ? bm[4] : nullptr; }
  bool writes() const { for (int p = 0; p < NP; p++) if (cfg.plain[p]) return true; return cfg.odd; }
  const char *terminal(const S &s) { if (m(V_REACH)) return nullptr; 
    // If no process died and each write got its reply, the notes are exact.
    bool calm = s.crashes == cfg.crashes && s.lates == cfg.lates;
    return s.d.ex && s.d.it ? bm[3] : s.r[NR - 1].pc != END ? bm[6] : calm && s.note && !s.over && !m(M_NOTE_AFTER) ? bm[7] : nullptr; }
};
// Alone, from any state that it can have, a process that encounters the intent completes it in a
// bounded number of steps.
static bool ends(const Cfg &cfg) { M md(cfg); St s; memset(&s, 0, sizeof s); md.init(s); for (int i = 0; i < NR - 1; i++) { s.r[i].pc = END; s.r[i].dead = 1; } for (auto &p : s.p) p = 1; s.crashes = s.lates = 0;
  for (int step = 0; step < 30; step++) { bool any = false; St n = s; md.succ(s, [&](const St &x) { if (!any) n = x; any = true; }); if (!any) return !(s.d.ex && s.d.it); s = n; } return false; }
int main(int argc, char **argv) {
  std::vector<Cfg> all; const char *pn[] = {"-", "set", "add", "set back", "in the way", "out of it", "replace", "remove"};
  for (int a = 0; a <= REMOVE; a++) for (int b = a; b <= REMOVE; b++) for (int c = b; c <= REMOVE; c++) { Cfg k = {}; k.name = std::string("plain: ") + pn[a] + ", " + pn[b] + ", " + pn[c]; k.plain[0] = a; k.plain[1] = b; k.plain[2] = c; k.crashes = 2; k.lates = 1; all.push_back(k); k.name += ", large"; k.large = true; all.push_back(k); }
  { Cfg k = {}; k.name = "a comparison that never holds"; k.odd = true; k.plain[0] = SET; k.plain[1] = BACK; k.crashes = 1; k.lates = 1; all.push_back(k); }
  if (argc > 1 && !strcmp(argv[1], "mutants")) {
    struct { u32 m; const char *name; } mu[] = {{M_NOTE_AFTER, "noted after the write"}, {M_NO_COMPARE, "what was looked at is not compared"}, {M_OWNER_FREE, "the owner does not compare"}, {M_KEEP_AFTER, "kept after the write"}, {M_KEEP_ONCE, "kept once"}, {M_MERGE_FREE, "what was merged does not compare"}, {M_MERGE_NOT, "goes over what would merge"}, {M_KEEP_WAY, "only the obstacle is kept"}, {M_ENDLESS, "compares for ever"},
      {M_UNNOTE_LOST, "a note of a loss is removed"}, {M_UNNOTE_ALL, "the notes of others are removed"}, {M_UNNOTE_LATE, "the note of a write without a reply is removed"}, {M_UNNOTE_FORCED, "the note of a forced write is removed"}, {M_UNNOTE_MISSED, "a releaser that comes late removes the notes"}, {M_FORCE_BARE, "a forced write is not noted"}, {M_NOTE_STAYS, "no note is removed"}};
    int alive = 0; for (auto &u : mu) { bool dead = false; for (auto c : all) { c.mut = u.m; M md(c); MC<M> mc; Res r = mc.run(md, 20000000); bool stuck = u.m == M_ENDLESS && r.viol.empty() && ends(c) == false; if (!r.viol.empty() || stuck) { dead = true; printf("%-50s [%s] KILLED: %s (%zu steps)\n", u.name, c.name.c_str(), stuck ? bm[6] : r.viol.c_str(), r.trace.size()); if (argc > 2) report("", r, true); break; } } if (!dead) { printf("%-50s SURVIVES\n", u.name); alive++; } fflush(stdout); }
    printf("%d survivors\n", alive); return alive != 0; }
  bool reach = argc > 1 && !strcmp(argv[1], "reach"), ok = true; u64 states = 0; for (auto c : all) { if (reach) c.mut = V_REACH; M md(c); MC<M> mc; Res r = mc.run(md, 60000000); states += r.n; if (!reach || !r.viol.empty()) report(c.name.c_str(), r, !reach); ok &= reach ? true : r.complete && r.viol.empty() && ends(c); }
  printf("%llu states in all\n", (unsigned long long)states); return !ok;
}
