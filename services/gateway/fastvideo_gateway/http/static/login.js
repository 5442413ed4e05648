// Who looks: whoever an open gateway lets in, else whoever has a key. The key is posted once; the
// browser keeps it where no script sees it.

import { ApiError, get, post } from "./api.js";
import { byId, setText } from "./dom.js";

const AGAIN_MS = 2000;

// Resolves with who it is, once somebody is; `onTrouble` is told when nobody answers.
export async function comeIn(onTrouble) {
  const me = (await known(onTrouble)) ?? (await asked());
  document.documentElement.dataset.role = me.role;
  byId("who").hidden = me.open;
  setText(byId("who-tenant"), me.tenant_id);
  byId("who").title = `key ${me.key_id}, ${me.role}`;
  byId("sign-out").addEventListener("click", async ({ currentTarget: button }) => {
    try {
      await post("/api/logout");
      location.assign("/");
    } catch {
      setText(button, "Still signed in, try again");
    }
  });
  // A key that ends while the page is open: the page asks for another one.
  document.addEventListener("signed-out", () => location.reload());
  return me;
}

async function known(onTrouble) {
  while (true) {
    try {
      return await get("/api/me");
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return null;
      onTrouble();
      await new Promise((again) => setTimeout(again, AGAIN_MS));
    }
  }
}

function asked() {
  const dialog = byId("login");
  const field = byId("login-key");
  const trouble = byId("login-trouble");
  return new Promise((done) => {
    let me = null;
    const show = () => {
      if (me) return;
      dialog.showModal();
      field.focus();
    };
    // There is nothing behind it; a browser closes it nevertheless when Escape is pressed twice.
    dialog.addEventListener("close", show);
    byId("login-form").addEventListener("submit", async (event) => {
      event.preventDefault();
      setText(trouble, "");
      try {
        me = await post("/api/login", { key: field.value.trim() });
        field.value = "";
        dialog.close();
        done(me);
      } catch (error) {
        setText(trouble, error.message);
        field.select();
      }
    });
    show();
  });
}
