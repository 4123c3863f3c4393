import { customAlphabet, nanoid } from "nanoid";
export default () => {
  const ids = Array.from({ length: 50 }, () => nanoid());
  return [ids.every((id) => /^[\w-]{21}$/.test(id)), new Set(ids).size, /^[abc]{10}$/.test(customAlphabet("abc", 10)())];
};
