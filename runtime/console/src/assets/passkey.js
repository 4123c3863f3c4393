// Passkeys: the key that this device keeps for its owner. It stays in the device; what it signs is for this
// server's name alone, so the page needs one: over TLS, or localhost. Without this file, links log in.

const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));

const hasName = !/^[\d.]+$|:/.test(location.hostname.replace(/^\[|\]$/g, ""));
const canBe = window.isSecureContext && hasName && "PublicKeyCredential" in window && "getPublicKey" in (window.AuthenticatorAttestationResponse?.prototype ?? {});

async function post(path, body) {
  const head = body ? { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {};
  const reply = await fetch(path, { method: "POST", ...head });
  const said = await reply.json();
  if (!reply.ok) throw new Error(said.detail);
  return said;
}

// What the key signs: a login, or a yes to this question.
async function signed(question) {
  const { challenge } = await post(`/api/v1/passkeys/challenge${question ? `?question=${encodeURIComponent(question)}` : ""}`);
  const { rawId, response } = await navigator.credentials.get({
    publicKey: { challenge: bytes(challenge), rpId: location.hostname, userVerification: "required" },
  });
  return {
    id: text(rawId),
    client: text(response.clientDataJSON),
    authenticator: text(response.authenticatorData),
    signature: text(response.signature),
  };
}

async function logIn(button) {
  await post("/api/v1/login/passkey", await signed());
  location.assign(button.dataset.next);
}

async function add(button) {
  const { challenge, algorithms } = await post("/api/v1/passkeys/challenge");
  const name = button.dataset.name;
  const { response } = await navigator.credentials.create({
    publicKey: {
      challenge: bytes(challenge),
      rp: { id: location.hostname, name: "lobster" },
      user: { id: crypto.getRandomValues(new Uint8Array(16)), name, displayName: name },
      pubKeyCredParams: algorithms.map((alg) => ({ type: "public-key", alg })),
      authenticatorSelection: { residentKey: "required", userVerification: "required" },
      attestation: "none",
    },
  });
  const key = response.getPublicKey();
  if (!key) throw new Error("this device makes keys of a kind that the browser does not know");
  await post("/api/v1/passkeys", {
    client: text(response.clientDataJSON),
    authenticator: text(response.getAuthenticatorData()),
    key: text(key),
  });
  location.reload();
}

// Whoever turns away from the device's question knows it.
const why = (error) => (error.name === "NotAllowedError" ? "Nothing was unlocked." : error.message);

for (const button of document.querySelectorAll("[data-passkey]")) {
  const place = button.closest("[data-passkeys]");
  place.hidden = !canBe;
  const said = place.querySelector("[role=alert]");
  button.addEventListener("click", async () => {
    button.disabled = true;
    said.textContent = "";
    try {
      await (button.dataset.passkey === "add" ? add : logIn)(button);
    } catch (error) {
      said.textContent = why(error);
      button.disabled = false;
    }
  });
}
for (const note of document.querySelectorAll("[data-no-passkeys]")) note.hidden = canBe;

for (const form of document.querySelectorAll("form[data-question]")) {
  form.addEventListener("submit", async (event) => {
    const by = event.submitter;
    if (form.elements.passkey.value || !["approve", "respond"].includes(by?.value)) return;
    event.preventDefault();
    // It is not on its way yet.
    event.stopPropagation();
    const said = form.querySelector("[role=alert]");
    said.textContent = canBe ? "" : "Browsers keep passkeys for names: open the console over TLS, or as http://localhost.";
    if (!canBe) return;
    try {
      form.elements.passkey.value = JSON.stringify(await signed(form.dataset.question));
      form.requestSubmit(by);
    } catch (error) {
      said.textContent = why(error);
    }
  });
}
