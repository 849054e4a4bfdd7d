// Refuses an unknown option, which would be ignored otherwise. The server checks the options that
// are fields of a command.
export function refuseUnknown(rest, where) {
  const [name] = Object.keys(rest);
  if (name !== undefined) throw new TypeError(`${where} has no option "${name}"`);
}
