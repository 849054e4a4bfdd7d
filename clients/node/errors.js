// The statuses of the library as errors. Each has `status`, `code`, `answer` and hasErrorLabel, as the driver's have; the driver's
// own error is its `cause`. Within a transaction the driver's error is thrown with a status added, for withTransaction knows it.
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

const classes = new Map(
  [Conflict, Locked, OutcomeUnknown, Duplicate, Expired, NotFound, Refused, Invalid, Limit, Timeout, StoreFailed, Corrupt]
    .map((one) => [one.status, one]));

// For what the driver threw; an error without a status stays what it is.
export function errorOf(cause, inTransaction) {
  const answer = cause?.errorResponse ?? cause?.result ?? {};
  const status = answer.status ?? cause?.status;
  if (typeof status !== "string") return cause;
  if (inTransaction) return Object.assign(cause, { status });
  const labels = [...(cause.errorLabels ?? answer.errorLabels ?? [])];
  return new (classes.get(status) ?? TruceError)(cause.message, { status, code: cause.code, answer, labels, cause });
}

export const isLost = (error) => /Network|ServerSelection|PoolCleared|NotConnected|TopologyClosed/.test(error?.name ?? "");
