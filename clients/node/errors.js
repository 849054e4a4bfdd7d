// The statuses of the library as errors. Each has `status`, `code`, `answer`, and hasErrorLabel,
// like the driver's errors; the driver's own error is its `cause`. Within a transaction the
// driver's error is thrown with a status added, because withTransaction recognizes it.
export class TruceError extends Error {
  static status = undefined;
  constructor(message, details = {}) {
    super(message, details.cause && { cause: details.cause });
    this.name = this.constructor.name;
    this.status = details.status ?? this.constructor.status;
    this.code = details.code;
    this.answer = details.answer;
    this.labels = details.labels ?? [];
  }
  hasErrorLabel(label) {
    return this.labels.includes(label);
  }
}

export class Conflict extends TruceError {
  static status = "conflict";
  conflicts = this.answer?.conflicts ?? this.answer?.conflict?.conflicts ?? [];
}
export class Locked extends TruceError { static status = "locked"; }
export class OutcomeUnknown extends TruceError { static status = "outcome unknown"; }
export class Duplicate extends TruceError { static status = "duplicate"; }
export class Expired extends TruceError { static status = "expired"; }
export class NotFound extends TruceError { static status = "not found"; }
export class Refused extends TruceError { static status = "refused"; }
export class Invalid extends TruceError { static status = "invalid"; }
export class Limit extends TruceError { static status = "limit reached"; }
export class Timeout extends TruceError { static status = "timed out"; }
export class StoreFailed extends TruceError { static status = "input or output failed"; }
export class Corrupt extends TruceError { static status = "corrupt"; }
// The user may not do this, or is not logged in.
export class Unauthorized extends TruceError { static status = "unauthorized"; }
// No server answered, or the connection was lost: the command may have happened or not.
export class Unreachable extends TruceError { static status = "unreachable"; }

const classes = new Map(
  [Conflict, Locked, OutcomeUnknown, Duplicate, Expired, NotFound, Refused, Invalid, Limit, Timeout, StoreFailed, Corrupt]
    .map((one) => [one.status, one]));

const byCode = new Map([[13, Unauthorized], [18, Unauthorized], [50, Timeout], [112, Conflict], [11000, Duplicate]]);

// One class for each cause. An error that is not a failure of a command or a connection is left
// unchanged.
export function errorOf(cause, inTransaction) {
  if (cause instanceof TruceError) return cause;
  const answer = cause?.errorResponse ?? cause?.result ?? {};
  const lost = isLost(cause);
  if (!lost && typeof cause?.code !== "number") return cause;
  const known = cause.code === 13 || cause.code === 18 ? undefined : classes.get(answer.status ?? cause.status);
  const one = lost ? Unreachable : known ?? byCode.get(cause.code) ?? TruceError;
  const status = known ? known.status : one.status ?? answer.status;
  if (inTransaction) return Object.assign(cause, { status });
  const labels = [...(cause.errorLabels ?? answer.errorLabels ?? [])];
  return new one(cause.message, { status, code: cause.code, answer, labels, cause });
}

export const isLost = (error) => error instanceof Unreachable ||
  /Network|ServerSelection|PoolCleared|NotConnected|TopologyClosed/.test(error?.name ?? "");
