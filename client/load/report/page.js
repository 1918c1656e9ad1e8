'use strict';
{
  // The plots' lines are in the page. This adds reading their values: all plots over time show the same moment.
  document.documentElement.classList.add('has-script');
  const source = document.getElementById('data');
  const data = source ? JSON.parse(source.textContent) : null;

  const nearest = (xs, x) => {
    let best = 0;
    for (let i = 1; i < xs.length; i++) if (Math.abs(xs[i] - x) < Math.abs(xs[best] - x)) best = i;
    return best;
  };
  const element = (tag, className, parent) => {
    const e = document.createElement(tag);
    e.className = className;
    parent.append(e);
    return e;
  };
  const pointed = (area, e) => {
    const box = area.getBoundingClientRect();
    return { x: ((e.clientX - box.left) / box.width) * 100, y: ((e.clientY - box.top) / box.height) * 100, box };
  };

  const overTime = () => {
    const plots = [...document.querySelectorAll('.plot')].map((figure, i) => {
      const area = figure.querySelector('.area');
      const cursor = element('div', 'cursor', area);
      cursor.hidden = true;
      const items = [...figure.querySelectorAll('.legend li')];
      return {
        area, cursor, label: element('span', '', cursor), title: figure.querySelector('h3').textContent,
        lines: data.plots[i].lines.map((line, k) => {
          const dot = element('b', 'dot ' + items[k].className, area);
          dot.hidden = true;
          const stat = items[k].querySelector('.stat');
          return { ...line, dot, stat, name: items[k].querySelector('.name').textContent, rest: stat.textContent };
        }),
      };
    });
    let at = -1;
    const show = (i) => {
      at = Math.max(0, Math.min(data.x.length - 1, i));
      for (const p of plots) {
        p.cursor.hidden = false;
        p.cursor.style.left = data.x[at] + '%';
        p.label.textContent = data.at[at];
        for (const l of p.lines) {
          const y = l.y[at];
          l.dot.hidden = y === null;
          if (y !== null) {
            l.dot.style.left = data.x[at] + '%';
            l.dot.style.top = y + '%';
          }
          l.stat.textContent = l.text[at];
          l.stat.classList.add('now');
        }
        p.area.setAttribute('aria-valuenow', at);
        p.area.setAttribute('aria-valuetext', data.at[at] + ': ' + p.lines.map((l) => l.name + ' ' + l.text[at]).join(', '));
      }
    };
    const hide = () => {
      at = -1;
      for (const p of plots) {
        p.cursor.hidden = true;
        for (const l of p.lines) {
          l.dot.hidden = true;
          l.stat.textContent = l.rest;
          l.stat.classList.remove('now');
        }
      }
    };
    for (const p of plots) {
      // To a screen reader, a plot is a slider along its time: the value it speaks is what the lines show there.
      p.area.tabIndex = 0;
      p.area.setAttribute('role', 'slider');
      p.area.setAttribute('aria-label', p.title + ', by time');
      p.area.setAttribute('aria-valuemin', 0);
      p.area.setAttribute('aria-valuemax', data.x.length - 1);
      p.area.setAttribute('aria-valuenow', 0);
      p.area.setAttribute('aria-valuetext', p.area.querySelector('svg').getAttribute('aria-label'));
      p.area.addEventListener('pointermove', (e) => show(nearest(data.x, pointed(p.area, e).x)));
      p.area.addEventListener('pointerdown', (e) => show(nearest(data.x, pointed(p.area, e).x)));
      p.area.addEventListener('pointerleave', (e) => { if (e.pointerType === 'mouse') hide(); });
      p.area.addEventListener('blur', hide);
      p.area.addEventListener('keydown', (e) => {
        const far = Math.max(1, Math.round(data.x.length / 20));
        const to = {
          ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1,
          PageUp: at + far, PageDown: at - far, Home: 0, End: data.x.length - 1,
        }[e.key];
        if (e.key === 'Escape') hide();
        if (to === undefined) return;
        e.preventDefault();
        show(to);
      });
    }
  };

  const marks = (area) => {
    const readout = area.parentElement.querySelector('.readout');
    const all = [...area.querySelectorAll('.mark')].map((e) => ({ e, x: parseFloat(e.style.left), y: parseFloat(e.style.top), text: e.title }));
    if (all.length === 0) return;
    all.sort((a, b) => a.x - b.x);
    let at = -1;
    const show = (i) => {
      at = Math.max(0, Math.min(all.length - 1, i));
      all.forEach((m, k) => m.e.classList.toggle('near', k === at));
      readout.textContent = all[at].text;
    };
    const hide = () => {
      at = -1;
      all.forEach((m) => m.e.classList.remove('near'));
      readout.textContent = '\u00a0';
    };
    area.tabIndex = 0;
    area.setAttribute('role', 'group');
    area.setAttribute('aria-label', area.querySelector('svg').getAttribute('aria-label') + ' Arrow keys read the runs.');
    area.addEventListener('pointermove', (e) => {
      const p = pointed(area, e);
      const far = (m) => Math.hypot(((m.x - p.x) * p.box.width) / 100, ((m.y - p.y) * p.box.height) / 100);
      show(all.reduce((best, m, k) => (far(m) < far(all[best]) ? k : best), 0));
    });
    area.addEventListener('pointerleave', hide);
    area.addEventListener('blur', hide);
    area.addEventListener('keydown', (e) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at < 0 ? all.length - 1 : at - 1, Home: 0, End: all.length - 1 }[e.key];
      if (to === undefined) return;
      e.preventDefault();
      show(to);
    });
  };

  if (data) overTime();
  document.querySelectorAll('.area.marks').forEach(marks);
}
